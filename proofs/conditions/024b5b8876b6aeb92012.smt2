; initially/indexed_is_settled: initial states satisfy indexed_is_settled
; unsat means that this is true
(set-logic ALL)
(declare-sort Page 0)
(declare-sort Request 0)
(declare-fun null (Page) Bool)
(declare-fun content (Page) Request)
(declare-fun content.none (Page) Bool)
(assert (forall ((p Page) (q Page)) (or (not (and (null p) (null q))) (= p q))))
(assert (exists ((p Page)) (not (null p))))
(assert (forall ((r Request) (p Page))
  (not (and (not (content.none p)) (= (content p) r)))))
(assert (not true))
(check-sat)
