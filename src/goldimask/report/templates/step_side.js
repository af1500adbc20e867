// What stands beside the strip: details of a token, charts, lanes of all methods, their figures.
GM.lookAt = (view, k, i, name) => {
  if (i < 0) return [GM.el('p', { class: 'soft', text: 'Point at a token, tap it, or move there with the arrow keys: a target shows which revealed tokens it attends to, a revealed token shows whom it supports.' })];
  const state = view.state(i, k), o = view.record.objective, out = [];
  const said = { prompt: 'prompt', visible: 'visible: never masked', candidate: 'candidate: masked', revealed: 'revealed: given back as context', target: 'target: still masked, carries loss' };
  const pairs = [['position', i], ['state', said[state]]];
  const before = view.masked.has(i) ? view.before(i) : null;
  if (before !== null) pairs.push(['p before', before]);
  if (view.masked.has(i) && view.entropy(i) !== null) pairs.push(['entropy before', view.entropy(i)]);
  if (state === 'target') {
    pairs.push(['p after', view.after(i)]);
    if (before !== null) pairs.push(['gain (nats)', Number(Math.log(view.after(i) / before).toPrecision(3))]);
    pairs.push(['weight', view.weight(i)]);
    if (view.mass(i) !== null) pairs.push(['support S', view.mass(i)]);
    if (o && view.mass(i) !== null) pairs.push(['φ(S)', Number(GM.support(o, view.mass(i)).toPrecision(3))]);
  }
  if (o && before !== null) pairs.push(['priority λ', Number(GM.priority(o, before).toPrecision(3))]);
  if (state === 'revealed' && view.record.ordered) {
    pairs.push(['choice', view.rank.get(i) + 1]);
    if (view.record.gains) pairs.push(['gain of F', view.record.gains[view.rank.get(i)]]);
  }
  out.push(GM.el('h3', {}, GM.word(view.group.tokens.vocab[view.group.tokens.index[i]].runs)), GM.facts(pairs));
  const links = view.links(i, k);
  if (links.length) {
    out.push(GM.el('div', { class: 'soft', text: state === 'target' ? 'Revealed tokens it attends to most:' : 'Targets that count it among their strongest supporters:' }));
    out.push(GM.el('ol', {}, links.slice(0, 12).map(([j, a]) => GM.el('li', {},
      GM.word(view.group.tokens.vocab[view.group.tokens.index[j]].runs), GM.el('small', { text: ` ${j} · attention ${GM.num(a, 3)}` })))));
    if (links.length > 12) out.push(GM.el('small', { class: 'soft', text: `and ${links.length - 12} more` }));
  } else if ((state === 'target' || state === 'revealed') && !view.record.supporters) {
    out.push(GM.el('p', { class: 'soft', text: 'This method measures no attention.' }));
  }
  return out;
};

GM.stepCharts = (view, k) => {
  const { record, probe } = view, o = record.objective, figures = [];
  if (o && record.order.length) {
    const p = o.paths, x = { min: 0, max: record.order.length, label: 'tokens revealed' };
    const pairs = (ys) => p.k.map((step, j) => [step, ys[j]]);
    const high = Math.max(...p.own, ...p.high, 1e-9);
    figures.push(GM.figure('Objective F', o.own ? '' : '(not what this method maximises)', GM.chart({
      label: `F reaches ${GM.num(o.value)}; random reveals reach ${GM.num(p.mean[p.mean.length - 1])} on average`,
      x, y: { min: 0, max: high * 1.05, label: 'F(R)' },
      layers: [{ band: p.k.map((s, j) => [s, p.low[j], p.high[j]]) }, { line: pairs(p.mean), class: 's5 dash' }, { line: pairs(p.own), class: 's0' }, { vertical: k }],
    }), GM.legend([record.method, `random, mean and 10–90 % of ${p.draws}`], ['s0', 's5 dash'])));
  }
  if (record.gains && record.gains.length) {
    const low = Math.min(0, ...record.gains), high = Math.max(...record.gains, 1e-9);
    figures.push(GM.figure('Gain of each choice', '', GM.chart({
      label: `marginal gains from ${GM.num(record.gains[0])} to ${GM.num(record.gains[record.gains.length - 1])}`,
      x: { min: 0, max: record.gains.length, label: 'choice' }, y: { min: low, max: high * 1.05, label: 'marginal gain' },
      layers: [{ line: record.gains.map((g, j) => [j + 1, g]), class: 's0' }, { vertical: k }],
    })));
  }
  const curve = (f, max) => Array.from({ length: 101 }, (_, j) => [(max * j) / 100, f((max * j) / 100)]);
  if (probe.before) {
    const shape = o || { a: 1, b: 3 };
    const f = (p) => GM.priority(shape, p);
    const points = probe.masked.map((i, j) => ({ i, x: probe.before[j], y: f(probe.before[j]), class: view.state(i, k) })).filter((q) => q.x !== null);
    figures.push(GM.figure('Priority λ(p)', o ? o.priority : 'p(1-p)^3, the paper’s', GM.chart({
      label: `priority of ${points.length} candidates by their probability before the reveal`,
      x: { min: 0, max: 1, label: 'p before' }, y: { min: 0, max: 1.05 * Math.max(...curve(f, 1).map((q) => q[1])), label: 'priority' },
      layers: [{ line: curve(f, 1), class: 's5' }, { points }],
    })));
  }
  if (record.support && record.targets.length) {
    const shape = o || { support: 'saturating', s0: 0.05 };
    const max = Math.max(0.1, ...record.support) * 1.05, f = (s) => GM.support(shape, s);
    const points = record.targets.map((i, j) => ({ i, x: record.support[j], y: f(record.support[j]), class: view.state(i, k) }));
    figures.push(GM.figure('Support φ(S)', shape.support === 'linear' ? 'linear' : `S / (S + ${shape.s0})`, GM.chart({
      label: `support of ${points.length} targets by the attention they pay to revealed tokens`,
      x: { min: 0, max, label: 'attention on revealed tokens, S' }, y: { min: 0, max: f(max) * 1.05, label: 'support' },
      layers: [{ line: curve(f, max), class: 's5' }, { points }],
    })));
  }
  if (probe.before && record.targets.length) {
    const points = record.targets.map((i, j) => ({ i, x: view.before(i), y: record.after[j], r: 2 + 5 * Math.sqrt(record.weight[j] / view.top), class: 'target' })).filter((q) => q.x !== null);
    figures.push(GM.figure('Probability before and after', 'size: weight', GM.chart({
      label: `probability of ${points.length} targets before and after the reveal`,
      x: { min: 0, max: 1, label: 'p before' }, y: { min: 0, max: 1, label: 'p after' },
      layers: [{ line: [[0, 0], [1, 1]], class: 's5 dot' }, { points }],
    })));
    const gains = points.map((q) => ({ ...q, x: Number(Math.log(q.y / q.x).toPrecision(4)), y: view.weight(q.i), r: 3.2 })).filter((q) => Number.isFinite(q.x));
    const xs = gains.map((q) => q.x), low = Math.min(0, ...xs), high = Math.max(0.01, ...xs);
    figures.push(GM.figure('Weight by gain', 'log p after − log p before', GM.chart({
      label: `weights of ${gains.length} targets by their gain`,
      x: { min: low, max: high, label: 'gain (nats)' }, y: { min: 0, max: Math.max(1, view.top) * 1.08, label: 'weight' },
      layers: [{ points: gains }, record.cap ? { horizontal: Math.min(record.cap, view.top * 1.06), note: record.cap <= view.top * 1.06 ? `cap ${record.cap}` : '' } : {}],
    })));
  }
  return figures;
};

// Moving the reveal slider changes states and rules, not the charts themselves.
GM.updateCharts = (host, view, k) => {
  for (const svg of host.querySelectorAll('svg[role="img"]')) svg.moveRule(k);
  for (const dot of host.querySelectorAll('.pt[data-i]')) {
    const self = dot.classList.contains('self') ? ' self' : '';
    dot.setAttribute('class', `pt ${view.state(Number(dot.dataset.i), k)}${self}`);
  }
};

// All methods at one noise level: a lane of cells per method, one cell per response token.
GM.lanes = (views, chosen, onpick) => GM.el('div', { class: 'lanes' }, views.flatMap((view, m) => {
  const start = view.group.tokens.prompt, n = Math.max(1, view.group.tokens.index.length - start);
  const paths = { visible: '', revealed: '', target: '', candidate: '' };
  for (let i = start; i < start + n; i += 1) {
    const state = view.state(i, view.last);
    const share = state === 'target' ? 0.25 + 0.75 * (view.weight(i) / view.top) : 0.25;
    const size = state === 'visible' ? 0.08 : share;
    paths[state] += `M${i - start} ${(1 - size).toFixed(3)}h.9v${size.toFixed(3)}h-.9z`;
  }
  const button = GM.el('button', { type: 'button', text: view.record.method, 'aria-pressed': String(m === chosen), on: { click: () => onpick(m) } });
  const svg = GM.svg('svg', { viewBox: `0 0 ${n} 1`, preserveAspectRatio: 'none', role: 'img',
    'aria-label': `${view.record.method}: ${view.record.order.length} revealed, ${view.record.targets.length} targets` },
  Object.entries(paths).map(([state, d]) => d && GM.svg('path', { class: state, d })));
  return [button, svg];
}));

GM.compareTable = (views, chosen) => GM.table('All methods on the same draws', ['method', 'masked', 'revealed', 'targets', 'F(R)', 'mean p before', 'mean p after', 'effective targets', 'largest weight', 'loss'],
  views.map(({ record, probe, before }) => {
    const mean = (list) => { const known = list.filter((x) => x !== null); return known.length ? Number((known.reduce((a, b) => a + b, 0) / known.length).toPrecision(3)) : null; };
    return [record.method, probe.masked.length, record.order.length, record.targets.length, record.objective && record.objective.value,
      probe.before ? mean(record.targets.map((i) => before(i))) : null, mean(record.after), record.n_eff,
      record.weight.length ? Number(Math.max(...record.weight).toPrecision(3)) : null, record.loss];
  }), { on: chosen });
