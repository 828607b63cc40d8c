; begin_read/fresh_read: begin_read keeps fresh_read
; unsat means that this is true, given
;   in_flight
;   written_is_own
(set-logic ALL)
(declare-sort Page 0)
(declare-sort Request 0)
(declare-fun written (Request Page) Bool)
(declare-fun begin_read.p () Page)
(declare-fun begin_read.r () Request)
(declare-fun r () Request)
(declare-fun content (Page) Request)
(declare-fun p () Page)
(declare-fun content.none (Page) Bool)
(declare-fun reading (Request Page) Bool)
(assert (written begin_read.r begin_read.p))
(assert (let ((a!1 (not (or (and (= begin_read.r r) (= begin_read.p p)) (reading r p)))))
(let ((a!2 (or a!1 (and (written r p) (not (content.none p)) (= (content p) r)))))
  (not a!2))))
(assert (forall ((r Request) (p Page)) (or (not (reading r p)) (written r p))))
(assert (forall ((r Request) (p Page))
  (or (not (written r p)) (and (not (content.none p)) (= (content p) r)))))
(check-sat)
