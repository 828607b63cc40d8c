; allocate/no_double_free: allocate keeps no_double_free
; unsat means that this is true, given
;   no_double_free
(set-logic ALL)
(declare-sort Page 0)
(declare-sort Request 0)
(declare-fun null (Page) Bool)
(declare-fun free (Page) Bool)
(declare-fun allocate.p () Page)
(declare-fun known (Request) Bool)
(declare-fun allocate.r () Request)
(declare-fun entries (Page) Int)
(declare-fun p () Page)
(assert (forall ((p Page) (q Page)) (or (not (and (null p) (null q))) (= p q))))
(assert (exists ((p Page)) (not (null p))))
(assert (not (exists ((q Page)) (and (null q) (free q)))))
(assert (free allocate.p))
(assert (known allocate.r))
(assert (let ((a!1 (>= 1
               (ite (= allocate.p p) (+ (entries allocate.p) (- 1)) (entries p)))))
  (not a!1)))
(assert (forall ((p Page)) (>= 1 (entries p))))
(check-sat)
