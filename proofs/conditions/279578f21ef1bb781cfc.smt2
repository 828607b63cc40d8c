; abort/in_flight: abort keeps in_flight
; unsat means that this is true, given
;   in_flight
(set-logic ALL)
(declare-sort Page 0)
(declare-sort Request 0)
(declare-fun reading (Request Page) Bool)
(declare-fun abort.r () Request)
(declare-fun holds (Request Page) Bool)
(declare-fun written (Request Page) Bool)
(declare-fun p () Page)
(declare-fun r () Request)
(assert (not (exists ((p Page)) (reading abort.r p))))
(assert (exists ((p Page)) (holds abort.r p)))
(assert (let ((a!1 (and (not (and (= abort.r r) (holds abort.r p))) (written r p))))
  (not (or (not (reading r p)) a!1))))
(assert (forall ((r Request) (p Page)) (or (not (reading r p)) (written r p))))
(check-sat)
