; abort/written_is_held: abort keeps written_is_held
; unsat means that this is true, given
;   written_is_held
(set-logic ALL)
(declare-sort Page 0)
(declare-sort Request 0)
(declare-fun reading (Request Page) Bool)
(declare-fun abort.r () Request)
(declare-fun holds (Request Page) Bool)
(declare-fun p () Page)
(declare-fun r () Request)
(declare-fun written (Request Page) Bool)
(assert (not (exists ((p Page)) (reading abort.r p))))
(assert (exists ((p Page)) (holds abort.r p)))
(assert (let ((a!1 (and (not (and (= abort.r r) (holds abort.r p))) (written r p)))
      (a!2 (and (not (and (= abort.r r) (holds abort.r p))) (holds r p))))
  (not (or (not a!1) a!2))))
(assert (forall ((r Request) (p Page)) (or (not (written r p)) (holds r p))))
(check-sat)
