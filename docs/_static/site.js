/* The explorer on the landing page has the theme of the site. */
document.addEventListener("DOMContentLoaded", () => {
  const frame = document.getElementById("explorer");
  if (!frame) return;
  const address = frame.getAttribute("src");
  let shown = "auto";
  const follow = () => {
    const theme = document.body.dataset.theme ?? "auto";
    if (theme === shown) return;
    shown = theme;
    const fresh = frame.cloneNode(); // a new address that differs in its hash only is not loaded
    fresh.setAttribute("src", theme === "auto" ? address : `${address}&theme=${theme}`);
    document.getElementById("explorer").replaceWith(fresh);
  };
  follow();
  new MutationObserver(follow).observe(document.body, { attributeFilter: ["data-theme"] });
});

/* Very wide pictures, tables and code that do not fit scroll, and fade where there is more to the right. */
document.addEventListener("DOMContentLoaded", () => {
  const follow = (box) => {
    const mark = () => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 4);
    box.classList.add("scrolls");
    box.addEventListener("scroll", mark, { passive: true });
    new ResizeObserver(mark).observe(box);
    mark();
  };
  document.querySelectorAll("article :is(.table-wrapper, div.highlight pre, .output.text_html)").forEach(follow);
  for (const cell of document.querySelectorAll("article table.docutils td"))
    cell.classList.toggle("long", cell.textContent.length > 24);
  for (const image of document.querySelectorAll("article :is(p, .cell_output .output, .cell_output) > img")) {
    const show = () => {
      const ratio = image.naturalWidth / image.naturalHeight;
      image.style.setProperty("--ratio", ratio);
      if (ratio > 2.8) follow(image.parentElement);
    };
    image.complete ? show() : image.addEventListener("load", show);
  }
});
