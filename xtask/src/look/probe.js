addEventListener('load', () => {
  const say = (text) => wrong.push(text);
  const charts = [...document.querySelectorAll('svg.chart')];
  const drawings = [...document.querySelectorAll('figure svg')];
  const nameOf = (svg) => {
    const caption = svg.closest('figure')?.querySelector('figcaption');
    return (caption?.firstChild?.textContent || 'a drawing without a caption').slice(0, 60);
  };
  if (drawings.length === 0 && document.querySelector('main')) say('there is no drawing');
  let texts = 0;
  for (const svg of drawings) {
    const frame = svg.getBoundingClientRect();
    const marks = [...svg.querySelectorAll('path, rect, line, polyline, circle')];
    const drawn = marks.filter((mark) => {
      const box = mark.getBBox();
      return box.width > 0 || box.height > 0;
    });
    if (frame.width < 100 || frame.height < 20 || drawn.length === 0) say(`empty: ${nameOf(svg)}`);
  }
  for (const svg of charts) {
    const frame = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll('text')]
      .filter((text) => text.textContent.trim() && getComputedStyle(text).visibility !== 'hidden')
      .map((text) => ({ words: text.textContent.slice(0, 40), box: text.getBoundingClientRect() }))
      .filter((one) => one.box.width > 0);
    texts += boxes.length;
    for (const { words, box } of boxes) {
      const out = Math.max(frame.left - box.left, box.right - frame.right, frame.top - box.top, box.bottom - frame.bottom);
      if (out > 1.5) say(`clipped by ${out.toFixed(0)} px: “${words}” in ${nameOf(svg)}`);
    }
    for (let a = 0; a < boxes.length; a += 1) {
      for (let b = a + 1; b < boxes.length; b += 1) {
        const [one, two] = [boxes[a].box, boxes[b].box];
        const wide = Math.min(one.right, two.right) - Math.max(one.left, two.left);
        const high = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
        if (wide > 1.5 && high > 3.5) say(`“${boxes[a].words}” lies over “${boxes[b].words}” in ${nameOf(svg)}`);
      }
    }
  }
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth + 1) say(`the page is ${root.scrollWidth} px wide in a window of ${innerWidth}`);
  const pre = document.createElement('pre');
  pre.id = 'probe';
  pre.textContent = JSON.stringify({ wrong, drawings: drawings.length, texts, height: root.scrollHeight });
  document.body.append(pre);
});
