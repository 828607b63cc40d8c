; allocate/written_is_held: allocate keeps written_is_held
; unsat means that this is true, given
;   written_is_held
(set-logic ALL)
(declare-sort Page 0)
(declare-sort Request 0)
(declare-fun free (Page) Bool)
(declare-fun allocate.p () Page)
(declare-fun holds (Request Page) Bool)
(declare-fun p () Page)
(declare-fun r () Request)
(declare-fun allocate.r () Request)
(declare-fun written (Request Page) Bool)
(assert (free allocate.p))
(assert (not (or (not (written r p))
         (and (= allocate.r r) (= allocate.p p))
         (holds r p))))
(assert (forall ((r Request) (p Page)) (or (not (written r p)) (holds r p))))
(check-sat)
