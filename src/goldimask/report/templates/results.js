// The summary: accuracy per task with its interval, and the change against the first row.
GM.kinds.results = (box, data) => {
  const base = data.rows[0];
  const cell = (row, task) => {
    const entry = row.tasks[task];
    if (!entry) return GM.el('span', { text: '–' });
    const node = GM.el('span', {}, GM.el('span', { 'data-accuracy': `${row.name}/${task}`, text: GM.percent(entry.accuracy) }));
    if (entry.low !== undefined) {
      node.append(GM.el('br'), GM.el('small', { text: `${(100 * entry.low).toFixed(1)}–${(100 * entry.high).toFixed(1)}` }));
    }
    const before = base.tasks[task];
    if (row !== base && before) node.append(GM.el('br'), GM.change(100 * (entry.accuracy - before.accuracy), 1, true));
    return node;
  };
  const rows = data.rows.map((row) => {
    const line = [row.name, ...data.tasks.map((task) => cell(row, task))];
    const steps = GM.el('span', { text: row.steps == null ? '–' : row.steps.toFixed(1) });
    if (row !== base && row.steps != null && base.steps != null) steps.append(GM.el('br'), GM.change(row.steps - base.steps, 1, false));
    const loss = GM.el('span', { text: row.held_out == null ? '–' : row.held_out.toFixed(4) });
    if (row !== base && row.held_out != null && base.held_out != null) loss.append(GM.el('br'), GM.change(row.held_out - base.held_out, 4, false));
    line.push(steps, loss);
    if (data.rows.some((r) => r.seconds != null)) line.push(row.seconds == null ? '–' : `${row.seconds.toFixed(0)} s`);
    return line;
  });
  const columns = ['model', ...data.tasks, 'decoding steps', 'held-out loss'];
  if (data.rows.some((r) => r.seconds != null)) columns.push('training');
  const sizes = Object.values(base.tasks).map((t) => t.n).filter((n) => n !== undefined);
  const caption = 'Accuracy with 95 % interval, change against the first row below it'
    + (sizes.length ? `; ${Math.min(...sizes)}${Math.min(...sizes) === Math.max(...sizes) ? '' : `–${Math.max(...sizes)}`} problems a task` : '');
  box.append(GM.table(caption, columns, rows));
  const facts = Object.entries(data.facts);
  if (facts.length) box.append(GM.facts(facts));
};

// A signed difference; better is green and marked by an arrow, so that colour is not alone.
GM.change = (delta, digits, moreIsBetter) => {
  const text = Math.abs(delta).toFixed(digits);
  if (Number(text) === 0) return GM.el('small', { text: `±${text}` });
  const better = (delta > 0) === moreIsBetter;
  return GM.el('small', { class: better ? 'up' : 'down', text: `${delta > 0 ? '▲ +' : '▼ −'}${text}` });
};
