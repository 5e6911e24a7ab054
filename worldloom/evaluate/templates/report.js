const plain = (cell) => cell.textContent.trim().replace(/\s+/g, " ");
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.onclick = () => {
    const table = button.closest("figure").querySelector("table");
    const lines = [...table.rows].map((row) => [...row.cells].map(plain).join("\t"));
    const put = (event) => {
      event.clipboardData.setData("text/plain", lines.join("\n") + "\n");
      event.preventDefault();
    };
    getSelection().selectAllChildren(table);
    document.addEventListener("copy", put);
    const done = document.execCommand("copy");
    document.removeEventListener("copy", put);
    if (done) getSelection().removeAllRanges();
    button.textContent = done ? "copied" : "selected: press Ctrl+C";
    setTimeout(() => (button.textContent = "copy"), 2000);
  };
}
const controls = document.querySelector(".controls");
if (controls) {
  const list = controls.querySelector("select");
  const episodes = [...document.querySelectorAll(".episode")];
  const show = (place) => {
    list.selectedIndex = place = (place + episodes.length) % episodes.length;
    episodes.forEach((episode, at) => (episode.hidden = at !== place));
    const box = episodes[place].querySelector(".steps");
    const first = box.querySelector(".step.differs");
    box.scrollTop = first ? first.offsetTop - box.querySelector(".sides").offsetHeight : 0;
  };
  list.onchange = () => show(list.selectedIndex);
  for (const button of controls.querySelectorAll("[data-go]")) {
    button.onclick = () => show(list.selectedIndex + Number(button.dataset.go));
  }
  controls.querySelector("[data-fold]").onclick = () => {
    const steps = [...episodes[list.selectedIndex].querySelectorAll(".step")];
    const open = steps.some((step) => !step.open);
    steps.forEach((step) => (step.open = open));
  };
  controls.hidden = false;
  show(0);
}
