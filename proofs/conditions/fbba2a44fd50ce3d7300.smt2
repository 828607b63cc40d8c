; begin_read/in_flight: begin_read keeps in_flight
; unsat means that this is true, given
;   in_flight
(set-logic ALL)
(declare-sort Page 0)
(declare-sort Request 0)
(declare-fun written (Request Page) Bool)
(declare-fun begin_read.p () Page)
(declare-fun begin_read.r () Request)
(declare-fun p () Page)
(declare-fun r () Request)
(declare-fun reading (Request Page) Bool)
(assert (written begin_read.r begin_read.p))
(assert (let ((a!1 (not (or (and (= begin_read.r r) (= begin_read.p p)) (reading r p)))))
  (not (or a!1 (written r p)))))
(assert (forall ((r Request) (p Page)) (or (not (reading r p)) (written r p))))
(check-sat)
