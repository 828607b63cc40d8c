; begin_read/isolated_read: begin_read keeps isolated_read
; unsat means that this is true, given
;   isolated_read
;   written_is_held
;   written_is_own
(set-logic ALL)
(declare-sort Page 0)
(declare-sort Request 0)
(declare-fun written (Request Page) Bool)
(declare-fun begin_read.p () Page)
(declare-fun begin_read.r () Request)
(declare-fun r () Request)
(declare-fun content (Page) Request)
(declare-fun p () Page)
(declare-fun content.none (Page) Bool)
(declare-fun holds (Request Page) Bool)
(declare-fun reading (Request Page) Bool)
(assert (written begin_read.r begin_read.p))
(assert (let ((a!1 (not (or (and (= begin_read.r r) (= begin_read.p p)) (reading r p))))
      (a!2 (or (content.none p) (and (not (content.none p)) (= (content p) r)))))
  (not (or a!1 (and (holds r p) a!2)))))
(assert (forall ((r Request) (p Page))
  (let ((a!1 (or (content.none p)
                 (and (not (content.none p)) (= (content p) r)))))
    (or (not (reading r p)) (and (holds r p) a!1)))))
(assert (forall ((r Request) (p Page)) (or (not (written r p)) (holds r p))))
(assert (forall ((r Request) (p Page))
  (or (not (written r p)) (and (not (content.none p)) (= (content p) r)))))
(check-sat)
