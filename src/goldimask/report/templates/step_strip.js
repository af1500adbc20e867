// The token strip: one box per token, coloured by state; a list box for keyboard and screen reader.
GM.strip = (group, onlook) => {
  const vocab = group.tokens.vocab, index = group.tokens.index;
  const strip = GM.el('div', {
    class: 'strip', role: 'listbox', 'aria-label': 'Tokens of the example. Arrow keys move, Enter holds, Escape lets go.',
  });
  // lines of tokens: the browser skips the layout of lines that are out of sight
  const longest = index.length > 1000 ? 150 : Infinity;
  let line = null, used = 0;
  const parts = index.map((v, i) => {
    if (!line || used >= longest) { line = GM.el('div', { class: longest < Infinity ? 'tokens far' : 'tokens', role: 'presentation' }); strip.append(line); used = 0; }
    const bar = GM.el('i'), before = GM.el('b'), after = GM.el('i'), rank = GM.el('span', { class: 'rank' });
    const node = GM.el('span', { class: 'tok', role: 'option', tabindex: -1, 'data-i': i, 'aria-selected': 'false' },
      rank, GM.el('span', { class: 'bar' }, bar), GM.word(vocab[v].runs), GM.el('span', { class: 'pp' }, before, after));
    line.append(node);
    used += 1;
    if (vocab[v].runs.some((run) => run[2] === 'newline') || i === group.tokens.prompt - 1) line = null;
    return { node, bar, before, after, rank };
  });
  let view = null, k = 0, held = -1, active = 0;
  const name = (i) => GM.spoken(vocab[index[i]].runs);

  const paint = (i) => {
    const { node, bar, before, after, rank } = parts[i];
    const state = view.state(i, k);
    node.className = `tok ${state}${vocab[index[i]].special ? ' special' : ''}`;
    const said = [`${i}`, name(i), state];
    if (state === 'revealed') {
      rank.textContent = view.record.ordered ? view.rank.get(i) + 1 : '';
      if (view.record.ordered) said.push(`choice ${view.rank.get(i) + 1}`);
    }
    if (state === 'target') {
      bar.style.height = `${(100 * view.weight(i)) / view.top}%`;
      said.push(`probability after ${GM.num(view.after(i))}`, `weight ${GM.num(view.weight(i))}`);
      after.style.left = `calc(${(100 * view.after(i)).toFixed(1)}% - 1px)`;
    }
    if (state === 'target' || state === 'candidate') {
      const p = view.before(i);
      before.hidden = p === null;
      if (p !== null) {
        before.style.left = `calc(${(100 * p).toFixed(1)}% - 1px)`;
        said.push(`probability before ${GM.num(p)}`);
      }
    }
    node.setAttribute('aria-label', said.join(', '));
  };

  const look = (i) => {
    for (const node of strip.querySelectorAll('.self, .lit')) node.classList.remove('self', 'lit');
    strip.classList.remove('look');
    if (i >= 0) {
      parts[i].node.classList.add('self');
      const links = view.links(i, k);
      for (const [j, a] of links) {
        parts[j].node.classList.add('lit');
        parts[j].node.dataset.a = a < 0.001 ? '<.001' : String(Number(a.toFixed(a < 0.1 ? 3 : 2))).replace(/^0/, '');
      }
      strip.classList.toggle('look', links.length > 0);
    }
    onlook(i);
  };
  const hold = (i) => {
    if (held >= 0) parts[held].node.setAttribute('aria-selected', 'false');
    held = held === i ? -1 : i;
    if (held >= 0) parts[held].node.setAttribute('aria-selected', 'true');
    look(held >= 0 ? held : i);
  };
  const focus = (i) => {
    parts[active].node.tabIndex = -1;
    active = Math.max(0, Math.min(parts.length - 1, i));
    parts[active].node.tabIndex = 0;
    parts[active].node.focus();
  };
  const at = (event) => { const node = event.target.closest('.tok'); return node ? Number(node.dataset.i) : -1; };

  strip.addEventListener('pointerover', (event) => { if (held < 0 && event.pointerType === 'mouse' && at(event) >= 0) look(at(event)); });
  strip.addEventListener('pointerleave', () => { if (held < 0 && !strip.contains(document.activeElement)) look(-1); });
  strip.addEventListener('focusin', (event) => {
    const i = at(event);
    if (i < 0) return;
    parts[active].node.tabIndex = -1;
    active = i;
    parts[i].node.tabIndex = 0;
    if (held < 0) look(i);
  });
  strip.addEventListener('click', (event) => { const i = at(event); if (i >= 0) { focus(i); hold(i); } });
  strip.addEventListener('keydown', (event) => {
    const jump = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 }[event.key];
    if (jump) focus(active + jump);
    else if (event.key === 'Home') focus(0);
    else if (event.key === 'End') focus(parts.length - 1);
    else if (event.key === 'Enter' || event.key === ' ') hold(active);
    else if (event.key === 'Escape') { if (held >= 0) hold(held); look(-1); }
    else return;
    event.preventDefault();
  });

  parts.forEach((part, i) => { if (i < group.tokens.prompt) part.node.classList.add('prompt'); });
  if (parts.length) { active = Math.min(group.tokens.prompt, parts.length - 1); parts[active].node.tabIndex = 0; }
  return {
    box: strip, name, look,
    show: (next, step) => {
      const all = view !== next;
      const old = k;
      view = next;
      k = step;
      const edge = (old >= view.last) !== (k >= view.last);
      if (all || edge) parts.forEach((_, i) => paint(i));
      else for (let j = Math.min(old, k); j < Math.max(old, k); j += 1) paint(view.record.order[j]);
      look(held);
    },
    held: () => held,
  };
};
