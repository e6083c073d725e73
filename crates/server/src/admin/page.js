// Asks /v0/status once a second, and draws the last five minutes of it.
'use strict';

const SAMPLES_MAX = 300;
const WIDTH = 900;
const HEIGHT = 160;
const SVG = 'http://www.w3.org/2000/svg';
const samples = [];
const byId = (id) => document.getElementById(id);

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// A line for each entry of `rows`: a class and a value for each sample, null where nothing is known.
function draw(id, rows) {
  const known = rows.flatMap(([, values]) => values.filter((value) => value !== null));
  const most = Math.max(1, ...known);
  const x = (at, count) => WIDTH - ((count - 1 - at) * WIDTH) / (SAMPLES_MAX - 1);
  const y = (value) => HEIGHT - 4 - (value / most) * (HEIGHT - 24);
  const children = [element('text', { x: 4, y: 14 }, Math.round(most).toLocaleString('en'))];
  for (const [name, values] of rows) {
    let part = [];
    const end = () => {
      if (part.length > 0) {
        children.push(element('polyline', { class: name, points: part.join(' ') }));
      }
      part = [];
    };
    values.forEach((value, at) => {
      if (value === null) end();
      else part.push(`${x(at, values.length).toFixed(1)},${y(value).toFixed(1)}`);
    });
    end();
  }
  byId(id).replaceChildren(...children);
}

const total = (refused) => Object.values(refused).reduce((sum, one) => sum + one, 0);

// What rose in each second; null at a gap and behind a restart.
function rates(of) {
  return samples.map((sample, at) => {
    const before = samples[at - 1];
    if (!sample.queues || !before || !before.queues) return null;
    const rose = of(sample.queues) - of(before.queues);
    const seconds = (sample.at - before.at) / 1000;
    return rose < 0 ? null : rose / seconds;
  });
}

function show(status) {
  byId('version').textContent = status.version || '';
  byId('phase').textContent = status.phase;
  byId('why').textContent = status.why ? `It is not ready: ${status.why}.` : '';
  byId('restore').textContent = status.restore
    ? `Since its start it took ${status.restore.records.toLocaleString('en')} records with ` +
      `${status.restore.bytes.toLocaleString('en')} bytes of the restore.`
    : '';
  const delays = samples.map(({ queues }) =>
    queues ? queues.processor.standing_delay_us / 1000 : null);
  draw('delay', [['all', delays]]);
  if (!status.queues) return;
  const { processor, classes } = status.queues;
  byId('line').textContent = processor.overloaded_loops > 0
    ? `${processor.standing} requests stand in line at ${processor.overloaded_loops} event loops.`
    : '';
  const names = Object.keys(classes);
  draw('admitted', names.map((name) => [name, rates((queues) => queues.classes[name].admitted)]));
  draw('refused', names.map((name) =>
    [name, rates((queues) => total(queues.classes[name].refused))]));
  byId('legend').replaceChildren(...names.map((name) => {
    const label = document.createElement('span');
    label.className = name;
    label.textContent = name;
    return label;
  }));
  const rows = names.flatMap((name) =>
    Object.entries(classes[name].refused)
      .filter(([, count]) => count > 0)
      .map(([reason, count]) => [name, reason, count.toLocaleString('en')]));
  byId('reasons').replaceChildren(...rows.map((cells) => {
    const row = document.createElement('tr');
    row.replaceChildren(...cells.map((text) => {
      const cell = document.createElement('td');
      cell.textContent = text;
      return cell;
    }));
    return row;
  }));
}

async function look() {
  let status = { phase: 'not answering' };
  try {
    const answer = await fetch('/v0/status', { cache: 'no-store' });
    if (answer.ok) status = await answer.json();
  } catch (error) {
    console.warn(error);
  }
  samples.push({ at: Date.now(), queues: status.queues });
  if (samples.length > SAMPLES_MAX) samples.shift();
  show(status);
  setTimeout(look, 1000);
}

look();
