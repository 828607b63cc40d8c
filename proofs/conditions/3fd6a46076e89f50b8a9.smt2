; set_aside/no_double_free: set_aside keeps no_double_free
; unsat means that this is true, given
;   no_double_free
(set-logic ALL)
(declare-sort Page 0)
(declare-fun null (Page) Bool)
(declare-fun free (Page) Bool)
(declare-fun set_aside.p () Page)
(declare-fun entries (Page) Int)
(declare-fun p () Page)
(assert (forall ((p Page) (q Page)) (or (not (and (null p) (null q))) (= p q))))
(assert (exists ((p Page)) (not (null p))))
(assert (and (null set_aside.p) (free set_aside.p)))
(assert (let ((a!1 (>= 1
               (ite (= set_aside.p p)
                    (+ (entries set_aside.p) (- 1))
                    (entries p)))))
  (not a!1)))
(assert (forall ((p Page)) (>= 1 (entries p))))
(check-sat)
