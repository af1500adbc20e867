// Build the page from its data block.
(() => {
  const page = JSON.parse(document.getElementById('data').textContent);
  document.getElementById('top').append(
    GM.el('div', {}, GM.el('h1', { text: page.title }), page.subtitle && GM.el('p', { class: 'soft', text: page.subtitle })),
    GM.theme(),
  );
  const main = document.getElementById('main');
  page.sections.forEach((part, i) => {
    const id = `part-${i}`;
    const box = GM.el('section', { 'aria-labelledby': id, 'data-kind': part.kind }, GM.el('h2', { id, text: part.title }));
    if (part.note) box.append(GM.el('p', { class: 'note', text: part.note }));
    main.append(box);
    GM.kinds[part.kind](box, part.data);
  });
  document.documentElement.dataset.ready = 'yes';
})();
