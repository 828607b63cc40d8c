; set_aside/set_aside_before_service: set_aside keeps set_aside_before_service
; unsat means that this is true, given
;   set_aside_before_service
(set-logic ALL)
(declare-sort Page 0)
(declare-fun null (Page) Bool)
(declare-fun free (Page) Bool)
(declare-fun set_aside.p () Page)
(declare-fun key.none (Page) Bool)
(declare-fun q () Page)
(declare-fun p () Page)
(assert (forall ((p Page) (q Page)) (or (not (and (null p) (null q))) (= p q))))
(assert (exists ((p Page)) (not (null p))))
(assert (and (null set_aside.p) (free set_aside.p)))
(assert (let ((a!1 (not (and (null p) (not (= set_aside.p p)) (free p)))))
  (not (or a!1 (key.none q)))))
(assert (forall ((p Page) (q Page)) (or (not (and (null p) (free p))) (key.none q))))
(check-sat)
