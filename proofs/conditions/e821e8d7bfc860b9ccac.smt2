; end_read/in_flight: end_read keeps in_flight
; unsat means that this is true, given
;   in_flight
(set-logic ALL)
(declare-sort Page 0)
(declare-sort Request 0)
(declare-fun reading (Request Page) Bool)
(declare-fun end_read.p () Page)
(declare-fun end_read.r () Request)
(declare-fun written (Request Page) Bool)
(declare-fun p () Page)
(declare-fun r () Request)
(assert (reading end_read.r end_read.p))
(assert (let ((a!1 (and (not (and (= end_read.r r) (= end_read.p p))) (reading r p))))
  (not (or (not a!1) (written r p)))))
(assert (forall ((r Request) (p Page)) (or (not (reading r p)) (written r p))))
(check-sat)
