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
