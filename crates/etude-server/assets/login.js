// Sends the login code of a link, which is in the fragment and thus in no log.
const code = new URLSearchParams(location.hash.slice(1)).get("login");
if (code) {
  history.replaceState(null, "", location.pathname);
  const form = document.getElementById("login-by-code");
  form.elements.code.value = code;
  form.submit();
}
