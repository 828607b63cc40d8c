; land/written_is_held: land keeps written_is_held
; unsat means that this is true, given
;   written_is_held
(set-logic ALL)
(declare-sort Page 0)
(declare-sort Request 0)
(declare-fun writing (Request Page) Bool)
(declare-fun land.p () Page)
(declare-fun land.r () Request)
(declare-fun holds (Request Page) Bool)
(declare-fun p () Page)
(declare-fun r () Request)
(declare-fun written (Request Page) Bool)
(assert (writing land.r land.p))
(assert (let ((a!1 (not (or (and (= land.r r) (= land.p p) (holds land.r land.p))
                    (written r p)))))
  (not (or a!1 (holds r p)))))
(assert (forall ((r Request) (p Page)) (or (not (written r p)) (holds r p))))
(check-sat)
