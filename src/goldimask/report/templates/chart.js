// Small SVG charts: lines, bands, points, rules on two linear axes.
GM.ticks = (min, max, count = 4) => {
  const raw = (max - min) / count;
  if (!(raw > 0)) return [min];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= raw * 0.999);
  const out = [];
  for (let x = Math.ceil(min / step - 1e-9) * step; x <= max + step * 1e-6; x += step) out.push(Math.abs(x) < step * 1e-9 ? 0 : x);
  return out;
};

GM.chart = (spec) => {
  const w = spec.width || 360, h = spec.height || 210, left = 46, right = 10, top = 8, bottom = 34;
  const [x0, x1] = GM.range(spec.x), [y0, y1] = GM.range(spec.y);
  const X = (x) => left + ((x - x0) / (x1 - x0)) * (w - left - right);
  const Y = (y) => h - bottom - ((y - y0) / (y1 - y0)) * (h - top - bottom);
  const across = (x) => `M${X(Math.max(x0, Math.min(x1, x)))} ${top}V${h - bottom}`;
  const at = (p) => `${X(p[0]).toFixed(1)} ${Y(p[1]).toFixed(1)}`;
  const svg = GM.svg('svg', { viewBox: `0 0 ${w} ${h}`, role: 'img', 'aria-label': spec.label });
  for (const y of GM.ticks(y0, y1)) {
    svg.append(GM.svg('path', { class: 'axis', d: `M${left} ${Y(y)}H${w - right}` }),
      GM.svg('text', { x: left - 5, y: Y(y) + 4, 'text-anchor': 'end', text: GM.num(y, 3) }));
  }
  for (const x of GM.ticks(x0, x1, 5)) {
    svg.append(GM.svg('text', { x: X(x), y: h - bottom + 15, 'text-anchor': 'middle', text: GM.num(x, 3) }));
  }
  svg.append(GM.svg('text', { x: (left + w - right) / 2, y: h - 3, 'text-anchor': 'middle', text: spec.x.label }));
  svg.append(GM.svg('text', { transform: `translate(11 ${(h - bottom + top) / 2}) rotate(-90)`, 'text-anchor': 'middle', text: spec.y.label }));
  for (const layer of spec.layers) {
    if (layer.line && layer.line.length) svg.append(GM.svg('path', { class: `line ${layer.class || ''}`, d: `M${layer.line.map(at).join('L')}` }));
    if (layer.band && layer.band.length) {
      const up = layer.band.map((b) => [b[0], b[2]]), down = layer.band.map((b) => [b[0], b[1]]).reverse();
      svg.append(GM.svg('path', { class: 'band', d: `M${[...up, ...down].map(at).join('L')}Z` }));
    }
    if (layer.bars) {
      const width = Math.max(1, Math.min(14, (w - left - right) / Math.max(1, x1 - x0) - 1));
      for (const [x, y] of layer.bars) {
        svg.append(GM.svg('rect', { class: layer.class, x: X(x) - width / 2, y: Y(Math.max(0, y)), width, height: Math.max(0, Y(0) - Y(y)) }));
      }
    }
    for (const p of layer.points || []) {
      const dot = GM.svg('circle', { class: `pt ${p.class || ''}`, cx: X(p.x).toFixed(1), cy: Y(p.y).toFixed(1), r: p.r || 3.2 });
      if (p.i !== undefined) dot.dataset.i = p.i;
      if (p.title) dot.append(GM.svg('title', { text: p.title }));
      svg.append(dot);
    }
    if (layer.vertical !== undefined) svg.append(GM.svg('path', { class: 'rule', 'data-rule': 'x', d: across(layer.vertical) }));
    if (layer.horizontal !== undefined) svg.append(GM.svg('path', { class: 'rule', d: `M${left} ${Y(layer.horizontal)}H${w - right}` }));
    if (layer.note) svg.append(GM.svg('text', { x: w - right, y: Y(layer.horizontal) + (Y(layer.horizontal) < 40 ? 13 : -4), 'text-anchor': 'end', text: layer.note }));
  }
  const rule = svg.querySelector('[data-rule]');
  svg.moveRule = (x) => { if (rule) rule.setAttribute('d', across(x)); };
  return svg;
};

GM.range = ({ min, max }) => {
  if (!Number.isFinite(min) || !Number.isFinite(max)) return [0, 1];
  return max > min ? [min, max] : [min - 0.5, max + 0.5];
};

GM.figure = (title, small, content, legend) => GM.el('figure', { class: 'panel' },
  GM.el('figcaption', { text: title }, small && GM.el('small', { text: ` ${small}` })), content, legend);

// Line styles differ in colour and in dash, so that neither is needed alone.
GM.series = (i) => `s${i % 6} ${['', 'dash', 'dot'][Math.floor(i / 2) % 3]}`;
GM.legend = (names, classes) => GM.el('div', { class: 'legend' }, names.map((name, i) => GM.el('span', {},
  GM.svg('svg', { viewBox: '0 0 28 10', 'aria-hidden': 'true' }, GM.svg('path', { class: `line ${classes ? classes[i] : GM.series(i)}`, d: 'M1 5H27' })), name)));
