// Requests a snapshot from the application every second and shows it. Data is inserted as text, never as markup.
"use strict";

const EVERY_MS = 1000;
const PATIENCE_MS = 5000;
const REMEMBERED = 600; // epochs, and figures from polls
const BARS = 60;
const [STEP, LARGEST] = [1.25, 3]; // of the drawing
const ENOUGH = 0.8; // of its size: smaller in half of the page, it gets all of it
const PAGE = 50; // entries of a store at once
const TOKEN = "penstock-token";
const COMMIT = new Set(["produce", "offsets", "commit", "after"]);
const PHASES = { // in order
  before: "global tables", job: "job", wait: "wait for commit", check: "check", produce: "produce", offsets: "send offsets", commit: "commit", after: "after",
};
const BY_TIME = new Set(["window", "timestamped_window", "session", "versioned"]); // stores with several values per key
const CLOSED = new Set(["raw", "timers"]); // internal stores, without user data
const STATES = { running: "good", rebalancing: "wait", created: "wait", standby: "wait", pending_shutdown: "wait", pending_error: "bad", error: "bad" };

const byId = (id) => document.getElementById(id);
const known = (number) => number !== null && number !== undefined;

const nothing = () => ({ started: 0, epochs: [], lag: [], delay: [], leftOut: [], bytes: [], chosen: null });
const memory = nothing();
let answeredAt = null;

// ---- words ----------------------------------------------------------------------------------------------------------

const exact = (number) => (known(number) ? Math.round(number).toLocaleString("en") : "–");

function short(number, unit = "") {
  if (!known(number)) return "–";
  for (const [size, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(number) >= size * 0.99995) return `${(number / size).toFixed(number < size * 100 ? 1 : 0)} ${letter}${unit}`;
  }
  return `${number < 10 && number % 1 ? number.toFixed(1) : Math.round(number)}${unit ? ` ${unit}` : ""}`;
}

function lasting(seconds) {
  if (!known(seconds)) return "–";
  if (seconds < 0) return `−${lasting(-seconds)}`;
  if (seconds < 0.0995) return `${(seconds * 1000).toFixed(seconds < 0.00995 ? 1 : 0)} ms`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 99.5) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  if (minutes < 2880) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} days`;
}

// Replace invisible characters, and those that change the direction of text.
const plain = (text) => String(text).replace(/[\p{C}\u2028\u2029]/gu, "\ufffd");

const percent = (share) => (known(share) ? `${share < 0.0995 ? (share * 100).toFixed(1) : Math.round(share * 100)} %` : "–");

// ---- elements -------------------------------------------------------------------------------------------------------

function element(tag, about = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(about)) {
    if (name === "text") made.textContent = value;
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function drawn(tag, about = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(about)) made.setAttribute(name, value);
  return made;
}

function say(id, text) {
  const place = byId(id);
  if (place.textContent !== text) place.textContent = text;
}

function figure(id, text, unit = "", isWarning = false) {
  const place = byId(id);
  place.replaceChildren(text);
  if (unit) place.append(element("small", { text: unit }));
  place.classList.toggle("warn", isWarning);
}

function fill(id, rows, otherwise) {
  const columns = byId(id).closest("table").querySelectorAll("th").length;
  const none = element("tr", {}, element("td", { class: "empty", colspan: columns, text: otherwise }));
  const shown = rows.length ? rows : [none];
  const before = [...byId(id).rows];
  before.slice(shown.length).forEach((row) => row.remove());
  shown.forEach((row, number) => (number < before.length ? change(before[number], row) : byId(id).append(row)));
}

function change(before, row) { // cell by cell, so that the focus and the user's selection survive
  const cells = [...row.cells];
  if (cells.length !== before.cells.length) return before.replaceWith(row);
  return cells.forEach((cell, number) => before.cells[number].isEqualNode(cell) || before.cells[number].replaceWith(cell));
}

const cell = (text, kind = "") => element("td", { class: kind, text });
const named = (name) => element("td", { class: "name", title: plain(name), text: plain(name) });

function bar(shares, kind = "") {
  const made = element("div", { class: `bar ${kind}`, "aria-hidden": "true" });
  for (const { share, about } of shares) {
    const part = element("i", about ? { title: about } : {});
    part.style.width = `${Math.min(100, share * 100)}%`;
    made.append(part);
  }
  return element("td", { class: "wide" }, made);
}

// ---- lines over time ------------------------------------------------------------------------------------------------

function spark(id, points) { // [time, figure], newest last; the scale starts at zero, so that heights can be compared
  const place = byId(id);
  if (points.length < 2) return place.replaceChildren();
  const [from, to] = [points[0][0], points[points.length - 1][0]];
  const highest = Math.max(...points.map((point) => point[1]), 1e-9);
  const line = points.map(([time, value]) => `${(((time - from) / (to - from || 1)) * 300).toFixed(1)} ${(36 - (value / highest) * 32).toFixed(1)}`);
  place.setAttribute("viewBox", "0 0 300 38");
  place.setAttribute("preserveAspectRatio", "none");
  place.replaceChildren(
    drawn("path", { class: "area", d: `M0 38L${line.join("L")}L300 38z` }),
    drawn("path", { class: "stroke", d: `M${line.join("L")}` }),
  );
}

function throughput(epochs, now) { // records per second in steps of two seconds; an epoch's records are spread over its duration
  if (!epochs.length) return [];
  const step = 2000;
  const from = Math.max(epochs[0].began_ms, now - 300 * 1000);
  const steps = Math.max(0, Math.floor((now - from) / step));
  const sums = new Array(steps).fill(0);
  epochs.forEach((epoch, number) => {
    const next = epochs[number + 1];
    const begin = epoch.began_ms;
    const end = Math.max(begin + epoch.seconds * 1000, Math.min(next ? next.began_ms : 0, begin + step));
    for (let at = Math.max(0, Math.floor((begin - from) / step)); at < steps && from + at * step < end; at += 1) {
      const both = Math.min(end, from + (at + 1) * step) - Math.max(begin, from + at * step);
      sums[at] += (epoch.records * Math.max(0, both)) / Math.max(1, end - begin);
    }
  });
  const last = epochs[epochs.length - 1];
  const until = last.began_ms + last.seconds * 1000; // the current epoch's records are not known yet
  return sums.map((sum, at) => [from + at * step, sum / (step / 1000)]).filter(([time]) => time + step <= until || now - until > 15000);
}

// ---- parts of the page ----------------------------------------------------------------------------------------------

function showHead(snapshot) {
  say("application", plain(snapshot.application));
  const isWaiting = snapshot.paused || snapshot.ready.length;
  const state = `${snapshot.state.replace("_", " ")}${snapshot.paused ? ", paused" : ""}`;
  say("state", state);
  byId("state").className = `state ${isWaiting && snapshot.state === "running" ? "wait" : STATES[snapshot.state] || ""}`;
  say("epoch", snapshot.epoch < 0 ? "none yet" : exact(snapshot.epoch));
  say("engine", snapshot.engine ? `${snapshot.engine.name}: ${exact(snapshot.engine.slots)} ${snapshot.engine.kind}` : "–");
  say("committed", known(snapshot.committed_s) ? `${lasting(snapshot.committed_s)} ago` : "–");
  say("current", snapshot.current ? `${PHASES[snapshot.current.phase] || snapshot.current.phase}, ${lasting(snapshot.current.seconds)}` : "idle");
  say("up", lasting(snapshot.up_s));
  say("version", snapshot.version);
  const dying = new Set(snapshot.live.map((problem) => problem.what));
  const problems = [...snapshot.live, ...snapshot.ready.filter((problem) => !dying.has(problem.what))];
  byId("problems").replaceChildren(...problems.map((problem) =>
    element("li", { class: dying.has(problem.what) ? "bad" : "" }, element("b", { text: plain(problem.what) }), plain(problem.why))));
  document.title = `${problems.length ? `(${problems.length}) ` : ""}${plain(snapshot.application)} · ${state}`;
  byId("restore").hidden = !snapshot.restore;
  if (snapshot.restore) {
    byId("restored").value = snapshot.restore.fraction;
    const { read, total, seconds, fraction } = snapshot.restore;
    const left = fraction > 0.02 ? `, about ${lasting((seconds / fraction) * (1 - fraction))} to go` : "";
    say("restored-words", `${percent(fraction)} · ${exact(read)} of ${exact(total)} records in ${lasting(seconds)}${left}`);
  }
}

function showTiles(snapshot) {
  const lags = snapshot.partitions.map((partition) => partition.lag).filter(known);
  const lag = lags.length ? lags.reduce((sum, one) => sum + one, 0) : null;
  const delay = known(snapshot.watermark) ? (snapshot.at_ms - snapshot.watermark) / 1000 : null;
  if (known(lag)) remember(memory.lag, [snapshot.at_ms, lag]);
  if (known(delay)) remember(memory.delay, [snapshot.at_ms, Math.max(0, delay)]);
  figure("throughput", short(snapshot.records_per_s), "records/s");
  figure("lag", short(lag), "records");
  const worst = snapshot.partitions.filter((one) => known(one.lag)).sort((one, two) => two.lag - one.lag)[0];
  say("lag-about", worst && worst.lag ? `most in ${plain(worst.topic)}-${worst.partition}: ${short(worst.lag)}` : "records not read yet");
  figure("delay", lasting(delay));
  say("delay-about", known(delay) ? "behind the clock" : "no source has a watermark");
  const seconds = memory.epochs.slice(-BARS).map((epoch) => epoch.seconds).sort((one, two) => one - two);
  figure("duration", seconds.length ? lasting(seconds[Math.floor(seconds.length / 2)]) : "–");
  say("duration-about", seconds.length ? `median; longest ${lasting(seconds[seconds.length - 1])}` : "none yet");
  const out = snapshot.dropped.reduce((sum, one) => sum + one.count, 0);
  const letters = snapshot.dropped.filter((one) => one.reason === "dead letter").reduce((sum, one) => sum + one.count, 0);
  figure("left-out", short(out), "records", letters > 0);
  say("left-out-about", letters ? `${exact(letters)} of them dead letters` : "none of them dead letters");
  const bytes = snapshot.memory.reduce((sum, one) => sum + one.bytes, 0);
  figure("memory", snapshot.memory.length ? short(bytes, "B") : "–");
  say("memory-about", snapshot.memory.length ? snapshot.memory.length === 1 ? "1 worker" : `${snapshot.memory.length} workers, most ${short(Math.max(...snapshot.memory.map((one) => one.bytes)), "B")}` : "Python workers");
  remember(memory.leftOut, [snapshot.at_ms, out]);
  if (snapshot.memory.length) remember(memory.bytes, [snapshot.at_ms, bytes]);
  spark("left-out-spark", memory.leftOut);
  spark("memory-spark", memory.bytes);
  spark("throughput-spark", throughput(memory.epochs, snapshot.at_ms));
  spark("lag-spark", memory.lag);
  spark("delay-spark", memory.delay);
  spark("duration-spark", memory.epochs.slice(-BARS).map((epoch) => [epoch.number, epoch.seconds]));
}

function showEpochs() {
  const shown = memory.epochs.slice(-BARS);
  const place = byId("epochs");
  place.setAttribute("viewBox", `0 0 ${BARS * 10} 132`);
  place.setAttribute("preserveAspectRatio", "none");
  const longest = Math.max(...shown.map((epoch) => epoch.seconds), 0.001);
  const scale = niceAbove(longest);
  const parts = [0, 0.5].map((part) => drawn("line", { x1: 0, x2: BARS * 10, y1: 1 + part * 130, y2: 1 + part * 130, "vector-effect": "non-scaling-stroke" }));
  shown.forEach((epoch, number) => {
    const group = drawn("g", { class: epoch.number === memory.chosen ? "chosen" : "", "data-epoch": epoch.number });
    const x = (BARS - shown.length + number) * 10;
    let top = 132;
    const sums = { rest: 0, job: 0, commit: 0 };
    for (const [phase, seconds] of Object.entries(epoch.phases)) sums[phase === "job" ? "job" : COMMIT.has(phase) ? "commit" : "rest"] += seconds;
    for (const kind of ["job", "commit", "rest"]) {
      const height = (sums[kind] / scale) * 130;
      top -= height;
      group.append(drawn("rect", { class: kind, x: x + 1, y: top, width: 8, height }));
    }
    group.append(drawn("rect", { class: "hit", x, y: 0, width: 10, height: 132 }));
    parts.push(group);
  });
  place.replaceChildren(...parts);
  say("epochs-top", shown.length ? lasting(scale) : "");
  say("epochs-half", shown.length ? lasting(scale / 2) : "");
  showChosen();
}

function niceAbove(seconds) {
  const size = 10 ** Math.floor(Math.log10(seconds));
  return size * [1, 2, 5, 10].find((step) => step * size >= seconds);
}

function showChosen() {
  const epoch = memory.epochs.find((one) => one.number === memory.chosen) || memory.epochs[memory.epochs.length - 1];
  if (!epoch) return say("chosen", "No epoch is committed yet.");
  const began = new Date(epoch.began_ms).toLocaleTimeString([], { hour12: false });
  const parts = Object.entries(epoch.phases).map(([phase, seconds]) => element("span", { text: `${PHASES[phase] || phase} ${lasting(seconds)}` }));
  const head = `${exact(epoch.number)} at ${began}: ${lasting(epoch.seconds)}, ${exact(epoch.records)} records`;
  byId("chosen").replaceChildren(element("b", { text: head }), ...parts);
}

function showLanes(snapshot) {
  const lanes = new Map();
  for (const one of snapshot.lanes) lanes.set(one.lane, [...(lanes.get(one.lane) || []), one]);
  const sums = [...lanes].map(([lane, stages]) => ({
    lane, stages, perS: stages.reduce((sum, one) => sum + one.per_s, 0), busy: stages.reduce((sum, one) => sum + one.busy, 0),
  }));
  fill("lanes", sums.map(({ lane, stages, perS, busy }) => element("tr", {}, cell(lane), cell(short(perS), "number"), cell(percent(busy), "number"),
    bar(stages.map((one) => ({ share: one.busy, about: `stage ${one.stage}: ${percent(one.busy)}` }))))), "no recent epoch");
  const mean = sums.reduce((sum, one) => sum + one.perS, 0) / (sums.length || 1);
  const most = Math.max(...sums.map((one) => one.perS), 0);
  say("lanes-about", mean ? `The busiest lane has ${(most / mean).toFixed(2)} times the mean${most / mean > 2 ? ": keys are unevenly distributed" : ""}. Shades: stages in order.` : "");
}

function showSources(snapshot) {
  const most = Math.max(...snapshot.partitions.map((one) => one.lag || 0), 1);
  const behind = (time) => (known(time) ? lasting((snapshot.at_ms - time) / 1000) : "–");
  fill("sources", snapshot.partitions.map((one) => element("tr", {}, named(`${one.topic}-${one.partition}`), cell(exact(one.lag), "number"),
    bar([{ share: (one.lag || 0) / most }], "waiting"), cell(behind(one.event_time), "number"),
    cell(one.idle ? "idle" : behind(one.watermark), one.watermark === snapshot.watermark && known(snapshot.watermark) ? "number lowest" : "number"))), "no partition yet");
}

function showStores(snapshot) {
  fill("stores", snapshot.stores.map((store) => {
    const button = element("button", { type: "button", "aria-label": `Browse ${plain(store.name)}`, text: "Browse" });
    Object.assign(button.dataset, { browse: store.name, kind: store.kind });
    button.hidden = CLOSED.has(store.kind);
    return element("tr", {}, named(store.name), cell(store.kind.replace("_", " "), "extra"), cell(exact(store.entries), "number"), cell(short(store.bytes, "B"), "number"), element("td", {}, button));
  }), "this topology has no stores");
}

function showDropped(snapshot) {
  fill("dropped", snapshot.dropped.map((one) => element("tr", {}, named(one.node), cell(plain(one.reason), one.reason === "dead letter" ? "warned" : ""), cell(exact(one.count), "number"))), "no dropped records");
  const letters = element("div", { id: "letters", class: "about" }, ...snapshot.dead_letter_topics.map((topic) =>
    element("p", {}, "Inspect: ", element("code", { text: `penstock dlq ls ${plain(topic)}` }))));
  if (!byId("letters").isEqualNode(letters)) byId("letters").replaceWith(letters);
}

function showTroubles(snapshot) {
  fill("troubles", snapshot.troubles.map((one) => element("tr", {}, cell(lasting((snapshot.at_ms - one.at_ms) / 1000)),
    cell(plain(one.level), one.level === "warning" ? "" : "bad"), cell(plain(one.what)))), "none since the start");
}

// ---- the drawing ----------------------------------------------------------------------------------------------------

async function loadDrawing() {
  const text = await (await requested("dashboard/topology.svg")).text();
  const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  const svg = document.importNode(root, true);
  Object.assign(drawing, { width: Number(svg.getAttribute("width")), height: Number(svg.getAttribute("height")), scale: null });
  const columns = byId("columns");
  columns.classList.toggle("broad", drawing.width * ENOUGH > columns.clientWidth / 2);
  byId("topology").replaceChildren(svg);
  resize();
}

const drawing = { width: 1, height: 1, scale: null }; // without a scale, all of it is shown

function fitting() {
  const place = byId("topology");
  return Math.min(1, place.clientWidth / drawing.width, (window.innerHeight * 0.82) / drawing.height);
}

function resize() {
  const svg = document.querySelector("#topology svg");
  if (!svg) return;
  const scale = drawing.scale === null ? fitting() : drawing.scale;
  svg.style.width = `${Math.floor(drawing.width * scale)}px`;
  svg.style.height = `${Math.floor(drawing.height * scale)}px`;
  byId("topology").classList.toggle("large", scale > fitting() * 1.01);
  say("size", drawing.scale === null ? "" : percent(scale));
}

function zoom(factor, { clientX, clientY } = {}) { // what is at the pointer, or in the middle, stays there
  const place = byId("topology");
  const box = place.getBoundingClientRect();
  const [x, y] = known(clientX) ? [clientX - box.left, clientY - box.top] : [place.clientWidth / 2, place.clientHeight / 2];
  const before = drawing.scale === null ? fitting() : drawing.scale;
  const after = Math.min(LARGEST, Math.max(fitting(), before * factor));
  const [left, top] = [(place.scrollLeft + x) * (after / before) - x, (place.scrollTop + y) * (after / before) - y];
  drawing.scale = after <= fitting() ? null : after;
  resize();
  place.scrollTo(left, top);
}

byId("smaller").addEventListener("click", () => zoom(1 / STEP));
byId("larger").addEventListener("click", () => zoom(STEP));
byId("fit").addEventListener("click", () => zoom(0));
byId("topology").addEventListener("wheel", (event) => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  zoom(event.deltaY < 0 ? STEP : 1 / STEP, event);
}, { passive: false });
byId("topology").addEventListener("pointerdown", (event) => { // a finger scrolls by itself
  const place = byId("topology");
  if (event.pointerType === "touch" || event.button || !place.classList.contains("large")) return;
  place.setPointerCapture(event.pointerId);
  place.classList.add("held");
});
byId("topology").addEventListener("pointermove", (event) => {
  const place = byId("topology");
  if (place.classList.contains("held")) place.scrollBy(-event.movementX, -event.movementY);
});
for (const end of ["pointerup", "pointercancel"]) byId("topology").addEventListener(end, () => byId("topology").classList.remove("held"));
new ResizeObserver(resize).observe(byId("topology"));

function showDrawing(snapshot) {
  const lags = new Map();
  for (const one of snapshot.partitions) {
    const sum = lags.get(one.drawn_as) || { lag: 0, partitions: 0 };
    lags.set(one.drawn_as, { lag: known(one.lag) && known(sum.lag) ? sum.lag + one.lag : null, partitions: sum.partitions + 1 });
  }
  const stores = new Map(snapshot.stores.map((store) => [store.name, store]));
  const hurt = new Set(snapshot.dropped.filter((one) => one.reason === "dead letter").map((one) => one.node));
  for (const part of document.querySelectorAll("#topology .part")) {
    const detail = part.querySelector(".detail");
    if (!detail) continue;
    const { node, topic, store } = part.dataset;
    if (node !== undefined && Object.hasOwn(snapshot.nodes, node)) {
      const { per_s, share } = snapshot.nodes[node];
      detail.textContent = `${short(per_s)}/s · ${percent(share)}`;
      showLoad(part, share || 0);
    } else if (lags.has(topic)) {
      const { lag } = lags.get(topic);
      detail.textContent = `lag ${short(lag)}`;
      part.classList.toggle("lagging", known(lag) && snapshot.records_per_s > 0 && lag > 10 * snapshot.records_per_s);
    } else if (topic !== undefined && Object.hasOwn(snapshot.sent, topic)) {
      detail.textContent = `${short(snapshot.sent[topic].per_s)}/s`;
    } else if (stores.has(store) && known(stores.get(store).entries)) {
      detail.textContent = `${short(stores.get(store).entries)} · ${short(stores.get(store).bytes, "B")}`;
    }
    if (node !== undefined) part.classList.toggle("hurt", hurt.has(node));
  }
}

function showLoad(part, share) {
  const shape = part.querySelector(".shape");
  const [width, height] = [Number(shape.getAttribute("width")), Number(shape.getAttribute("height"))];
  let load = part.querySelector(".load");
  if (!load) {
    load = drawn("rect", { class: "load", x: 3, y: height - 4, height: 3, rx: 1.5 });
    shape.after(load);
  }
  load.setAttribute("width", ((width - 6) * share).toFixed(1));
}

// ---- requests -------------------------------------------------------------------------------------------------------

class Refused extends Error {
  constructor(status, { error, code }) {
    super(error || `status ${status}`);
    Object.assign(this, { status, code });
  }
}

async function requested(path) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  if (answer.ok) return answer;
  throw new Refused(answer.status, await answer.json().catch(() => ({})));
}

function remember(list, one) {
  list.push(one);
  if (list.length > REMEMBERED) list.splice(0, list.length - REMEMBERED);
}

function takeIn(snapshot) {
  const started = snapshot.at_ms - snapshot.up_s * 1000;
  if (Math.abs(started - memory.started) > 5000) Object.assign(memory, nothing(), { started });
  const newest = memory.epochs.length ? memory.epochs[memory.epochs.length - 1].number : -1;
  for (const epoch of snapshot.epochs) if (epoch.number > newest) remember(memory.epochs, epoch);
}

function show(snapshot) {
  takeIn(snapshot);
  for (const part of [showHead, showTiles, showEpochs, showLanes, showSources, showStores, showDropped, showTroubles, showDrawing]) part(snapshot);
}

async function poll() {
  try {
    if (!document.querySelector("#topology svg")) await loadDrawing();
    const newest = memory.epochs.length ? memory.epochs[memory.epochs.length - 1].number : "";
    const snapshot = await (await requested(`dashboard/snapshot?after=${newest}`)).json();
    answeredAt = Date.now();
    show(snapshot);
    byId("stale").hidden = true;
    byId("shown").classList.remove("old");
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return askForToken();
    showStale(error);
  }
  return setTimeout(poll, EVERY_MS);
}

function showStale(error) {
  const why = error instanceof Refused ? error.message : "it does not respond.";
  const since = answeredAt === null ? "" : `Data as of ${new Date(answeredAt).toLocaleTimeString([], { hour12: false })}. `;
  say("stale", `${since}No new data from the application: ${why}`);
  byId("stale").hidden = false;
  byId("shown").classList.add("old");
  say("state", "unknown");
  byId("state").className = "state";
  const label = error instanceof Refused ? "refused" : "no response";
  document.title = `(${label}) ${document.title.replace(/^\(.*?\) /, "")}`;
}

function askForToken() {
  say("door-says", sessionStorage.getItem(TOKEN) ? "Wrong token." : "");
  sessionStorage.removeItem(TOKEN);
  if (!byId("door").open) byId("door").showModal();
}

byId("unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, byId("token").value.trim());
  byId("token").value = "";
  byId("door").close();
  poll();
});
byId("door").addEventListener("cancel", (event) => event.preventDefault());

// ---- selecting an epoch ---------------------------------------------------------------------------------------------

function choose(number) {
  memory.chosen = number;
  for (const group of document.querySelectorAll("#epochs g")) group.classList.toggle("chosen", Number(group.dataset.epoch) === number);
  showChosen();
}

byId("epochs").addEventListener("pointermove", (event) => {
  const group = event.target.closest("g");
  if (group) choose(Number(group.dataset.epoch));
});
byId("epochs").addEventListener("pointerleave", () => choose(null));
byId("epochs").addEventListener("blur", () => choose(null));
byId("epochs").addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step) return;
  event.preventDefault();
  byId("chosen").setAttribute("aria-live", "polite"); // read out only what the user selects
  const shown = memory.epochs.slice(-BARS);
  const at = shown.findIndex((epoch) => epoch.number === memory.chosen);
  const next = shown[Math.max(0, Math.min(shown.length - 1, at < 0 ? shown.length - 1 : at + step))];
  if (next) choose(next.number);
});

// ---- settings -------------------------------------------------------------------------------------------------------

const flat = (settings, prefix = "") => Object.entries(settings).flatMap(([name, value]) =>
  (value && typeof value === "object" && !Array.isArray(value) ? flat(value, `${prefix}${name}.`) : [[prefix + name, value]]));

byId("open-settings").addEventListener("click", async () => {
  say("settings-say", "");
  byId("values").replaceChildren();
  byId("settings").showModal();
  try {
    const found = flat(await (await requested("config")).json()).filter(([, value]) => known(value));
    fill("values", found.map(([name, value]) => element("tr", {}, cell(plain(name)), cell(asText(value)))), "no settings");
  } catch (error) {
    say("settings-say", `The settings are not shown: ${error.message}`);
  }
});
byId("close-settings").addEventListener("click", () => byId("settings").close());

// ---- keys of a store ------------------------------------------------------------------------------------------------

const browsing = { store: null, kind: null, path: "", cursor: null };
const TIMES = new Set(["timestamp", "window_start", "window_end", "valid_to"]); // in milliseconds since 1970
const asText = (value) => plain(typeof value === "string" ? value : JSON.stringify(value));

function moment(time) {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? String(time) : date.toISOString(); // no calendar has every number
}

const besideIt = (besides) => Object.entries(besides).map(([name, value]) =>
  `${plain(name.replace("_", " "))} ${TIMES.has(name) && Number.isFinite(value) ? moment(value) : asText(value)}`).join("\n");

async function browse(path, isMore = false) {
  Object.assign(browsing, { path });
  const { store, cursor } = browsing;
  const from = isMore ? `&cursor=${encodeURIComponent(cursor)}` : "";
  try {
    const { epoch, rows: found, ...one } = await (await requested(`stores/${encodeURIComponent(store)}/${path}${from}`)).json();
    if (store !== browsing.store || path !== browsing.path) return;
    const rows = (found || [one]).map(({ key, value, ...besides }) =>
      element("tr", {}, cell(asText(key)), cell(asText(value)), cell(besideIt(besides))));
    if (isMore) byId("entries").append(...rows);
    else fill("entries", rows, "no entries");
    browsing.cursor = one.cursor;
    say("browsed-epoch", `as of epoch ${exact(epoch)}`);
    say("browser-says", "");
  } catch (error) {
    if (store !== browsing.store || path !== browsing.path) return;
    if (error.code === "no_key") say("browser-says", "There is no such key.");
    else sayWhyNot(error);
    if (!isMore) byId("entries").replaceChildren();
    browsing.cursor = null;
  }
  byId("more").hidden = !browsing.cursor;
}

function sayWhyNot(error) {
  const isAbsent = error instanceof Refused && [404, 405, 501].includes(error.status);
  say("browser-says", isAbsent ? `The application does not support this query: ${error.message}` : `The query failed: ${error.message}`);
}

const fromTheStart = () => browse(`range?limit=${PAGE}`);

byId("stores").addEventListener("click", (event) => {
  const button = event.target.closest("[data-browse]");
  if (!button) return;
  Object.assign(browsing, { store: button.dataset.browse, kind: button.dataset.kind, cursor: null });
  say("browsed", plain(browsing.store));
  say("browsed-epoch", "");
  byId("wanted").value = "";
  byId("entries").replaceChildren();
  byId("browser").showModal();
  fromTheStart();
});
byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = encodeURIComponent(byId("wanted").value);
  if (!key) fromTheStart();
  else browse(BY_TIME.has(browsing.kind) ? `fetch?limit=${PAGE}&key=${key}` : `get?key=${key}`);
});
byId("first").addEventListener("click", fromTheStart);
byId("more").addEventListener("click", () => browse(browsing.path, true));
byId("close").addEventListener("click", () => byId("browser").close());

poll();
