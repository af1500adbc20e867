// Tables, facts, prose.
GM.table = (caption, columns, rows, options = {}) => {
  const head = GM.el('tr', {}, columns.map((c, i) => GM.el('th', { scope: 'col', text: c, class: i < (options.left || 1) && 'text' })));
  const body = rows.map((row, r) => GM.el('tr', { class: options.on === r && 'on' }, row.map((cell, i) => {
    const node = cell instanceof Node;
    const attrs = i === 0 ? { scope: 'row' } : { class: i < (options.left || 1) && 'text' };
    return GM.el(i === 0 ? 'th' : 'td', node ? attrs : { ...attrs, text: typeof cell === 'number' ? GM.num(cell) : (cell ?? '–') }, node ? cell : null);
  })));
  const table = GM.el('table', {}, caption && GM.el('caption', { text: caption }), GM.el('thead', {}, head), GM.el('tbody', {}, body));
  return GM.el('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': caption || 'table' }, table);
};

GM.facts = (pairs) => GM.el('dl', { class: 'facts' }, pairs.map(([name, value]) => GM.el('div', {},
  GM.el('dt', { text: name }),
  GM.el('dd', { 'data-fact': name, text: typeof value === 'number' ? GM.num(value) : String(value ?? '–') }))));

GM.kinds.facts = (box, data) => box.append(GM.facts(data.pairs));
GM.kinds.table = (box, data) => box.append(GM.table(data.caption, data.columns, data.rows, { left: data.left }));
GM.kinds.prose = (box, data) => box.append(...data.paragraphs.map((p) => GM.el('p', { text: p })));
GM.kinds.links = (box, data) => box.append(GM.el('ul', {}, data.links
  .filter((link) => /^(\.\.\/)*[\w%][\w%./-]*\.(html|pdf|png|csv|tex|md|json)$/.test(link.href))
  .map((link) => GM.el('li', {}, GM.el('a', { href: link.href, text: link.text })))));
GM.kinds.samples = (box, data) => {
  for (const sample of data.samples) {
    const verdict = sample.correct ? ['good', '✓ correct'] : ['bad', '✗ wrong'];
    box.append(GM.el('details', { class: 'panel' },
      GM.el('summary', {}, GM.el('span', { class: verdict[0], text: verdict[1] }), ` ${sample.run} · ${sample.task} · ${sample.id} · answer ${sample.extracted ?? 'none'} · ${sample.steps} steps`),
      GM.el('pre', { dir: 'auto', text: sample.output })));
  }
};
