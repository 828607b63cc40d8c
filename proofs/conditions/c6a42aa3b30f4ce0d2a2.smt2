; evict/set_aside_before_service: evict keeps set_aside_before_service
; unsat means that this is true, given
;   set_aside_before_service
(set-logic ALL)
(declare-sort Page 0)
(declare-fun null (Page) Bool)
(declare-fun key.none (Page) Bool)
(declare-fun evict.p () Page)
(declare-fun q () Page)
(declare-fun free (Page) Bool)
(declare-fun p () Page)
(assert (forall ((p Page) (q Page)) (or (not (and (null p) (null q))) (= p q))))
(assert (exists ((p Page)) (not (null p))))
(assert (not (key.none evict.p)))
(assert (let ((a!1 (or (not (and (null p) (free p)))
               (ite (= evict.p q) true (key.none q)))))
  (not a!1)))
(assert (forall ((p Page) (q Page)) (or (not (and (null p) (free p))) (key.none q))))
(check-sat)
