; land/isolated_write: land keeps isolated_write
; unsat means that this is true, given
;   isolated_write
(set-logic ALL)
(declare-sort Page 0)
(declare-sort Request 0)
(declare-fun writing (Request Page) Bool)
(declare-fun land.p () Page)
(declare-fun land.r () Request)
(declare-fun quarantined (Page) Bool)
(declare-fun p () Page)
(declare-fun holds (Request Page) Bool)
(declare-fun r () Request)
(assert (writing land.r land.p))
(assert (let ((a!1 (and (not (and (= land.r r) (= land.p p))) (writing r p))))
  (not (or (not a!1) (holds r p) (quarantined p)))))
(assert (forall ((r Request) (p Page))
  (or (not (writing r p)) (holds r p) (quarantined p))))
(check-sat)
