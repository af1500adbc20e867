// The one-step viewer: example, method, noise level, reveal step.
GM.kinds.steps = (box, data) => {
  const host = GM.el('div');
  if (data.groups.length > 1) {
    const pick = GM.el('select', { 'aria-label': 'Example' }, data.groups.map((g, i) => GM.el('option', { value: i, text: `example ${i + 1} (${g.example})` })));
    pick.addEventListener('change', () => GM.clear(host, GM.stepGroup(data, data.groups[Number(pick.value)])));
    box.append(GM.el('div', { class: 'row' }, pick));
  }
  box.append(GM.clear(host, GM.stepGroup(data, data.groups[0])));
};

GM.stepGroup = (data, group) => {
  const methods = [...new Set(group.records.map((r) => r.method))];
  const times = [...new Set(group.records.map((r) => r.t))].sort((a, b) => a - b);
  const cache = new Map();
  const viewOf = (m, t) => {
    const key = `${m}/${t}`;
    if (!cache.has(key)) {
      const record = group.records.find((r) => r.method === methods[m] && r.t === times[t]);
      cache.set(key, record ? GM.stepView(group, record) : null);
    }
    return cache.get(key);
  };
  const own = group.records.filter((r) => r.method === data.start);
  const middle = (a, b) => (Math.abs(b.t - 0.5) < Math.abs(a.t - 0.5) ? b : a); // half masked shows most
  const first = (own.length ? own : group.records).reduce(middle);
  let method = methods.indexOf(first.method), time = times.indexOf(first.t), k = 0, view = null, looking = -1;

  const facts = GM.el('div'), detail = GM.el('div', { class: 'panel look-at', 'aria-live': 'polite' });
  const charts = GM.el('div', { class: 'grid' }), lanes = GM.el('div', { class: 'panel' }), table = GM.el('div', { class: 'row' });
  const detailNow = () => GM.clear(detail, GM.lookAt(view, k, looking));
  const strip = GM.strip(group, (i) => {
    looking = i;
    detailNow();
    for (const dot of charts.querySelectorAll('.pt.self')) dot.classList.remove('self');
    if (i >= 0) for (const dot of charts.querySelectorAll(`.pt[data-i="${i}"]`)) dot.classList.add('self');
  });

  const methodBox = GM.choice('Method', methods, method, (m) => { method = m; show(); });
  const timeBox = GM.slider('noise level t', times.length - 1, time, (i) => GM.num(times[i], 3), (i) => { time = i; show(); });
  const stepBox = GM.slider('reveal', 1, 0, (i) => (view ? `${i} of ${view.last}` : ''), (i) => { k = i; draw(false); });

  const show = () => {
    const next = viewOf(method, time);
    if (!next) { GM.clear(facts, GM.el('p', { class: 'note', text: `No step of ${methods[method]} at t = ${GM.num(times[time])} is on this page.` })); return; }
    view = next;
    k = view.last;
    stepBox.set(k, view.last);
    draw(true);
  };
  const draw = (all) => {
    const r = view.record;
    strip.show(view, k);
    detailNow();
    if (!all) { GM.updateCharts(charts, view, k); return; }
    GM.clear(charts, GM.stepCharts(view, k));
    GM.clear(facts, GM.facts([
      ['method', r.method], ['t', r.t], ['over-masking ρ', r.rho], ['supervisable L', r.length], ['masked |C|', view.probe.masked.length],
      ['revealed |R|', r.order.length], ['targets |S|', r.targets.length], ['F(R)', r.objective ? r.objective.value : '–'],
      ['effective targets', r.n_eff], ['cap', r.cap ?? '–'], ['loss', r.loss],
    ]));
    const views = methods.map((_, m) => viewOf(m, time)).filter(Boolean);
    const chosen = views.indexOf(view);
    const pick = (m) => { method = methods.indexOf(views[m].record.method); methodBox.mark(method); show(); lanes.querySelectorAll('button')[m].focus(); };
    GM.clear(lanes, GM.el('h3', { text: 'Side by side' }), GM.lanes(views, chosen, pick));
    GM.clear(table, GM.compareTable(views, chosen));
  };

  const key = (state, text, extra) => GM.el('span', { class: 'key' }, GM.el('span', { class: `tok ${state}`, 'aria-hidden': 'true' }, GM.el('span', { class: 'word', text: extra || 'token' })), text);
  const legend = GM.el('div', { class: 'row' }, key('prompt', 'prompt'), key('visible', 'visible'), key('candidate', 'candidate, masked'),
    key('revealed', 'revealed, with its place in the order'), key('target', 'target; bar above: weight; ticks below: p before (short) and after (long)'));
  const small = GM.el('p', { class: 'note', text: `Attention is kept for the ${data.supporters} strongest revealed tokens of each target; S is the whole mass. ${data.left_out || ''}` });
  const root = GM.el('div', {}, GM.el('div', { class: 'row noprint' }, methodBox.box),
    GM.el('div', { class: 'row noprint' }, times.length > 1 ? timeBox.box : null, stepBox.box), facts, legend,
    GM.el('div', { class: 'stage' }, GM.el('div', {}, strip.box, small), detail), charts, lanes, table);
  show();
  return root;
};
