"use strict";
(() => {
  const stepper = document.getElementById("stepper");
  const frames = [...document.querySelectorAll(".frame")];
  const links = [...document.querySelectorAll(".strip a")];
  const nav = stepper.querySelector("nav");
  const status = document.getElementById("status");
  const controls = document.getElementById("controls");
  const [first, back, next, last] = controls.querySelectorAll("button");
  let shown = -1;

  const place = () => {
    const found = /^#step=(\d+)$/.exec(location.hash);
    return found ? frames.findIndex((frame) => frame.id === "step=" + Number(found[1])) : -1;
  };

  // Where a picture is wider than its place, what the step changed or broke is brought into view.
  const bring = (box) => {
    if (!box || box.scrollWidth <= box.clientWidth) return;
    const marks = [...box.querySelectorAll(".kv-stroke-wrong, .kv-fill-wrong, .kv-fill-new, .kv-stroke-new")];
    if (!marks.length) return;
    const middle = (mark) => (mark.getBoundingClientRect().left + mark.getBoundingClientRect().right) / 2;
    box.scrollLeft += Math.max(...marks.map(middle)) - (box.getBoundingClientRect().left + box.clientWidth / 2);
  };

  const show = (wanted) => {
    const at = Math.min(Math.max(wanted, 0), frames.length - 1);
    if (at === shown) return false;
    const held = shown >= 0 && frames[shown].contains(document.activeElement);
    shown = at;
    frames.forEach((frame, number) => (frame.hidden = number !== at));
    const strip = links[at].closest(".strip");
    strip.scrollTo({ left: links[at].parentElement.offsetLeft - strip.clientWidth / 2, top: links[at].parentElement.offsetTop - strip.clientHeight / 2 });
    links.forEach((link, number) => {
      if (number === at) link.setAttribute("aria-current", "step");
      else link.removeAttribute("aria-current");
    });
    // Not `disabled`: a button that loses its use must not lose the focus with it.
    for (const [button, off] of [[first, at === 0], [back, at === 0], [next, at === frames.length - 1], [last, at === frames.length - 1]]) {
      button.setAttribute("aria-disabled", String(off));
    }
    bring(frames[at].querySelector(".scroll"));
    const heading = frames[at].querySelector("h3").textContent.replace(/\s+/g, " ").trim();
    status.textContent = heading + ". " + frames[at].querySelector(".sentence").textContent;
    if (held) frames[at].querySelector("h3").focus({ preventScroll: true }); // what had the focus is hidden now
    return true;
  };

  // Below the buttons, which stay in place.
  const reveal = () => {
    frames[shown].style.scrollMarginTop = nav.offsetHeight + 4 + "px";
    frames[shown].scrollIntoView();
  };

  const go = (wanted) => {
    if (!show(wanted)) return;
    history.replaceState(null, "", "#" + frames[shown].id);
    const top = frames[shown].querySelector("h3").getBoundingClientRect().top;
    if (top < nav.getBoundingClientRect().bottom - 1 || top > innerHeight * 0.8) reveal();
  };

  first.addEventListener("click", () => go(0));
  back.addEventListener("click", () => go(shown - 1));
  next.addEventListener("click", () => go(shown + 1));
  last.addEventListener("click", () => go(frames.length - 1));

  addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || event.defaultPrevented) return;
    const scrolled = event.target.closest ? event.target.closest(".scroll") : null;
    if (scrolled && scrolled.scrollWidth > scrolled.clientWidth) return;
    const box = stepper.getBoundingClientRect();
    const inView = box.top < innerHeight * 0.7 && box.bottom > innerHeight * 0.3;
    switch (event.key) {
      case "ArrowLeft":
        go(shown - 1);
        break;
      case "ArrowRight":
        go(shown + 1);
        break;
      case "Home":
        if (!inView) return;
        go(0);
        break;
      case "End":
        if (!inView) return;
        go(frames.length - 1);
        break;
      default:
        return;
    }
    event.preventDefault();
  });

  const follow = () => {
    const at = place();
    if (at < 0) return;
    show(at);
    reveal();
    frames[at].querySelector("h3").focus({ preventScroll: true });
  };
  addEventListener("hashchange", follow);

  // A link to the step that is in the address already changes nothing there.
  addEventListener("click", (event) => {
    const link = event.target.closest ? event.target.closest('a[href^="#step="]') : null;
    if (link && link.hash === location.hash) follow();
  });

  document.documentElement.classList.add("stepping");
  controls.hidden = false;
  show(Math.max(place(), 0));
  if (place() >= 0) {
    if (document.readyState === "complete") reveal();
    else addEventListener("load", reveal); // after the browser has gone there by itself
  }
})();
