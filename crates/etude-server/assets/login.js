// Sends the login code of a link, which is in the fragment and thus in no log.
const code = new URLSearchParams(location.hash.slice(1)).get("login");
if (code) {
  history.replaceState(null, "", location.pathname);
  const form = document.getElementById("login-by-code");
  form.elements.code.value = code;
  // The link of a page leads to it.
  if (!location.pathname.endsWith("/login")) form.elements.next.value = location.pathname + location.search;
  form.submit();
}
