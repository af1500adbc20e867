// Replay of a decode: models side by side under one slider, with confidence, threshold and tokens per step.
GM.kinds.decodes = (box, data) => {
  const host = GM.el('div');
  const show = (i) => GM.clear(host, GM.replay(data.groups[i]));
  if (data.groups.length > 1) {
    const pick = GM.el('select', { 'aria-label': 'Prompt' }, data.groups.map((_, i) => GM.el('option', { value: i, text: `prompt ${i + 1} of ${data.groups.length}` })));
    pick.addEventListener('change', () => show(Number(pick.value)));
    box.append(GM.el('div', { class: 'row noprint' }, pick));
  }
  box.append(host);
  show(0);
};

GM.replay = (group) => {
  const prompt = GM.el('div', { class: 'panel' }, GM.el('h3', { text: 'Prompt' }), GM.el('div', { class: 'canvas' },
    group.prompt.index.map((v) => GM.el('span', { class: `tok prompt${group.prompt.vocab[v].special ? ' special' : ''}` }, GM.word(group.prompt.vocab[v].runs)))));
  const panes = group.models.map((model) => GM.replayPane(model));
  const last = Math.max(1, ...group.models.map((m) => m.steps));
  let timer = 0;
  const go = (k) => panes.forEach((pane) => pane.show(k));
  const slider = GM.slider('step', last, last, (k) => `${k} of ${last}`, (k) => { stop(); go(k); });
  const play = GM.el('button', { type: 'button', text: 'Play' });
  const stop = () => { clearInterval(timer); timer = 0; play.textContent = 'Play'; };
  play.addEventListener('click', () => {
    if (timer) { stop(); return; }
    play.textContent = 'Pause';
    let k = Number(slider.input.value) >= last ? 0 : Number(slider.input.value);
    timer = setInterval(() => { if (!play.isConnected || k > last) { stop(); return; } slider.set(k); go(k); k += 1; }, 350);
  });
  go(last);
  return GM.el('div', {}, prompt, GM.el('div', { class: 'row noprint' }, play, slider.box), GM.el('div', { class: 'models' }, panes.map((p) => p.box)));
};

GM.replayPane = (model) => {
  const at = new Map(); // position -> [step, confidence]
  for (const step of model.trace) step.positions.forEach((p, j) => at.set(p, [step.step, step.confidence[j]]));
  const canvas = GM.el('div', { class: 'canvas', role: 'group', 'aria-label': `Response of ${model.label}` });
  const cells = model.canvas.index.map((v, i) => {
    if (model.block && model.block < model.length && i % model.block === 0) canvas.append(GM.el('span', { class: 'cell block', text: `block ${i / model.block + 1}` }));
    const again = model.canvas.vocab[v].special && v === model.canvas.index[i - 1]; // a run of end tokens: the first one says it
    const cell = GM.el('span', { class: 'cell' }, again ? GM.el('span', { class: 'word', text: '·' }) : GM.word(model.canvas.vocab[v].runs));
    canvas.append(cell);
    return cell;
  });
  const state = GM.el('p', { class: 'soft', 'aria-live': 'off' });
  const show = (k) => {
    let done = 0, fresh = 0;
    cells.forEach((cell, i) => {
      const [step, confidence] = at.get(i) || [Infinity, null];
      const open = step > k;
      const entry = model.canvas.vocab[model.canvas.index[i]];
      done += open ? 0 : 1;
      fresh += step === k ? 1 : 0;
      const sure = model.tau !== null && confidence !== null ? (confidence >= model.tau ? 'sure' : 'low') : '';
      cell.className = `cell ${open ? 'open' : sure} ${step === k ? 'new' : ''} ${entry.special ? 'special' : ''} ${entry.special && !open ? 'end' : ''}`;
      cell.title = open ? 'masked' : `step ${step}, confidence ${GM.num(confidence)}`;
    });
    const block = model.trace.find((s) => s.step === k);
    state.textContent = `step ${Math.min(k, model.steps)} of ${model.steps}: ${done} of ${cells.length} tokens, ${fresh} new${block ? `, block ${block.block + 1}` : ''}`;
    GM.clear(charts, ...GM.replayCharts(model, k));
  };
  const charts = GM.el('div', { class: 'grid' });
  const facts = [`${model.decoder}`, model.tau !== null ? `τ = ${model.tau}` : '', `${model.steps} steps`, `${GM.num(model.length / Math.max(1, model.steps), 3)} tokens a step`].filter(Boolean).join(' · ');
  const head = GM.el('h3', { text: model.label });
  const box = GM.el('div', { class: 'panel', 'data-model': model.label }, head, GM.el('div', { class: 'soft', text: facts }));
  if (model.verdict) {
    const v = model.verdict;
    box.append(GM.el('div', {}, GM.el('span', { class: v.correct ? 'good' : 'bad', text: v.correct ? '✓ correct' : '✗ wrong' }),
      ` answer ${v.extracted ?? 'none'}${v.answer !== undefined && v.answer !== null ? `, expected ${v.answer}` : ''}`));
  }
  if (!model.complete) box.append(GM.el('div', { class: 'bad', text: 'stopped before every position was filled' }));
  box.append(state, canvas, charts);
  return { box, show };
};

GM.replayCharts = (model, k) => {
  const x = { min: 0, max: Math.max(1, model.steps), label: 'step' };
  const counts = model.trace.map((s) => [s.step, s.positions.length]);
  const points = model.trace.flatMap((s) => s.confidence.map((c) => ({ x: s.step, y: c, r: 2.4, class: s.step === k ? 'target' : 'revealed' })));
  const layers = [{ points }, { vertical: k }];
  if (model.tau !== null) layers.push({ horizontal: model.tau, note: `τ = ${model.tau}` });
  const min = Math.min(0.9, ...points.map((p) => p.y));
  return [
    GM.figure('Tokens a step', '', GM.chart({ label: `${model.length} tokens in ${model.steps} steps`, height: 150, x, y: { min: 0, max: Math.max(1, ...counts.map((c) => c[1])), label: 'tokens' }, layers: [{ bars: counts, class: 'revealed' }, { vertical: k }] })),
    GM.figure('Confidence when written', '', GM.chart({ label: 'confidence of each token at the step that wrote it', height: 150, x, y: { min: Math.max(0, min - 0.05), max: 1.04, label: 'confidence' }, layers })),
  ];
};
