for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.onclick = () => {
    getSelection().selectAllChildren(button.closest("figure").querySelector("table"));
    document.execCommand("copy");
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
