// node check.mjs PAGE SCRIPT: open a page, run one of the scripts below, print one JSON object.
// Environment: CHROMIUM, the browser.
import { launch, open } from './launch.mjs';

const [file, name] = process.argv.slice(2);

const text = (page, selector) => page.locator(selector).first().textContent();
const facts = (page, scope) =>
  page.$$eval(`${scope} [data-fact]`, (nodes) =>
    Object.fromEntries(nodes.map((n) => [n.dataset.fact, n.textContent])),
  );
const setSlider = (page, label, value) =>
  page
    .getByRole('slider', { name: label })
    .first()
    .evaluate((node, v) => {
      node.value = v;
      node.dispatchEvent(new Event('input', { bubbles: true }));
    }, value);
const counts = (page) =>
  page.$$eval('.strip .tok', (nodes) => {
    const found = {};
    for (const node of nodes)
      for (const state of ['prompt', 'visible', 'candidate', 'revealed', 'target'])
        if (node.classList.contains(state)) found[state] = (found[state] || 0) + 1;
    return found;
  });

const scripts = {
  async open(page) {
    return {
      title: await page.title(),
      words: await page.$$eval('.strip .tok .word', (nodes) => nodes.map((n) => n.textContent)),
    };
  },
  async step(page) {
    const out = { first: await facts(page, '[data-kind=steps]'), counts: await counts(page) };
    const target = page.locator('.strip .tok.target').first();
    out.target = Number(await target.getAttribute('data-i'));
    await target.hover();
    out.hovered = await facts(page, '.look-at');
    out.lit = await page.$$eval('.strip .tok.lit', (nodes) =>
      nodes.map((n) => [Number(n.dataset.i), n.dataset.a]),
    );
    out.listed = await page.$$eval('.look-at ol li', (nodes) => nodes.map((n) => n.textContent));
    const revealed = page.locator('.strip .tok.revealed').first();
    out.revealed = Number(await revealed.getAttribute('data-i'));
    await revealed.hover();
    out.supports = await page.$$eval('.strip .tok.lit', (nodes) =>
      nodes.map((n) => Number(n.dataset.i)),
    );
    out.revealedFacts = await facts(page, '.look-at');
    await page.mouse.move(1, 1);
    await setSlider(page, 'reveal', 2);
    out.slid = await counts(page);
    out.ranks = await page.$$eval('.strip .tok.revealed', (nodes) =>
      nodes.map((n) => [Number(n.dataset.i), n.querySelector('.rank').textContent]),
    );
    await page.getByRole('radio', { name: 'vanilla' }).click();
    out.vanilla = await facts(page, '[data-kind=steps] dl');
    out.vanillaCounts = await counts(page);
    await setSlider(page, 'noise level t', 0);
    out.lowest = await facts(page, '[data-kind=steps] dl');
    return out;
  },
  async keyboard(page) {
    await page.locator('.group[role=radiogroup] button[aria-checked=true]').focus();
    await page.keyboard.press('ArrowRight');
    const out = { method: await text(page, 'button[aria-checked=true]') };
    await page.keyboard.press('ArrowLeft');
    await page.locator('.strip .tok[tabindex="0"]').focus();
    const at = () => page.evaluate(() => Number(document.activeElement.dataset.i));
    out.start = await at();
    await page.keyboard.press('ArrowRight');
    out.right = await at();
    await page.keyboard.press('End');
    out.end = await at();
    await page.keyboard.press('Home');
    out.home = await at();
    out.label = await page.evaluate(() => document.activeElement.getAttribute('aria-label'));
    await page.keyboard.press('Enter');
    out.held = await page.$$eval('.strip [aria-selected=true]', (n) => n.length);
    await page.keyboard.press('Escape');
    out.released = await page.$$eval('.strip [aria-selected=true]', (n) => n.length);
    out.tabStops = await page.$$eval('.strip .tok[tabindex="0"]', (n) => n.length);
    out.unnamed = await page.$$eval(
      'button, select, input, svg[role=img]',
      (nodes) =>
        nodes.filter(
          (n) => !(n.getAttribute('aria-label') || n.textContent.trim() || n.closest('label')),
        ).length,
    );
    return out;
  },
  async decode(page) {
    const open = () =>
      page.$$eval('[data-model]', (panes) =>
        panes.map((p) => [
          p.dataset.model,
          p.querySelectorAll('.cell.open').length,
          p.querySelectorAll('.cell.new').length,
        ]),
      );
    const out = { last: await open() };
    out.legend = await page.$$eval('[data-legend] .key', (n) => n.map((x) => x.textContent));
    out.axes = await page.$$eval('[data-model]', (panes) =>
      panes.map((p) =>
        [...p.querySelectorAll('svg')].map((chart) =>
          [...chart.querySelectorAll('text')].map((t) => t.textContent).join(' '),
        ),
      ),
    );
    await setSlider(page, 'step', 0);
    out.none = await open();
    await setSlider(page, 'step', 1);
    out.one = await open();
    out.words = await page.$$eval('[data-model] .cell:not(.open):not(.block) .word', (nodes) =>
      nodes.map((n) => n.textContent),
    );
    return out;
  },
  async results(page) {
    const rows = (nodes) => nodes.map((n) => [...n.children].map((cell) => cell.textContent));
    return { rows: await page.$$eval('[data-kind=results] tbody tr', rows) };
  },
  async themes(page) {
    const colour = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const out = { light: await colour() };
    await page.getByRole('button', { name: 'Dark theme' }).click();
    out.dark = await colour();
    await page.setViewportSize({ width: 360, height: 740 });
    out.overflow = await page.evaluate(
      () => document.documentElement.scrollWidth - window.innerWidth,
    );
    out.contrast = await page.evaluate(() => {
      const rgb = (c) =>
        c
          .match(/[\d.]+/g)
          .slice(0, 3)
          .map(Number);
      const light = (c) =>
        rgb(c)
          .map((v) => {
            const s = v / 255;
            return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
          })
          .reduce((a, v, i) => a + v * [0.2126, 0.7152, 0.0722][i], 0);
      const ratio = (a, b) => {
        const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
        return (x + 0.05) / (y + 0.05);
      };
      const found = {};
      for (const theme of ['light', 'dark']) {
        document.documentElement.dataset.theme = theme;
        for (const state of ['prompt', 'visible', 'candidate', 'revealed', 'target']) {
          const node = document.querySelector(`.key .tok.${state}`);
          const own = getComputedStyle(node).backgroundColor;
          const back =
            own === 'rgba(0, 0, 0, 0)' ? getComputedStyle(document.body).backgroundColor : own;
          found[`${theme} ${state}`] = ratio(getComputedStyle(node).color, back);
        }
      }
      return found;
    });
    return out;
  },
  // What a reader of each width would miss: parts beyond the edge, cut text, boxes that scroll
  // without saying so.
  async widths(page) {
    const target = page.locator('.strip .tok.target').first();
    if (await target.count()) await target.click();
    const out = {};
    for (const width of [390, 800, 1400]) {
      await page.setViewportSize({ width, height: 900 });
      await page.evaluate(() => new Promise((done) => setTimeout(done, 60)));
      out[width] = await page.evaluate(() => {
        const found = { beyond: [], cut: [], silent: [] };
        const name = (node) =>
          `${node.tagName}.${node.getAttribute('class')} ${(node.textContent || '').slice(0, 40)}`;
        for (const node of document.querySelectorAll('body *')) {
          if (!node.checkVisibility() || node.closest('.sr, .skip')) continue;
          const box = node.getBoundingClientRect();
          const scrolled = node.parentElement.closest('.scroll, .tall');
          if (!scrolled && (box.right > window.innerWidth + 1 || box.left < -1))
            found.beyond.push(name(node));
          if (!(node instanceof HTMLElement) || node.matches('.tok .word')) continue;
          const style = getComputedStyle(node);
          const sides = [
            [style.overflowX, node.scrollWidth - node.clientWidth],
            [style.overflowY, node.scrollHeight - node.clientHeight],
          ];
          for (const [overflow, more] of sides) {
            if (more <= 1 || overflow === 'visible' || !node.clientWidth) continue;
            const hint = node.parentElement.querySelector(':scope > .more');
            if (!['auto', 'scroll'].includes(overflow)) found.cut.push(name(node));
            else if (!hint || !hint.checkVisibility() || !hint.textContent.trim())
              found.silent.push(name(node));
          }
        }
        const page = document.documentElement.scrollWidth - window.innerWidth;
        return { page: Math.max(0, page), ...found };
      });
    }
    return out;
  },
  async campaign(page, cpu) {
    const overflow = async () => {
      const found = {};
      for (const width of [390, 800, 1400]) {
        await page.setViewportSize({ width, height: 900 });
        found[width] = await page.evaluate(
          () => document.documentElement.scrollWidth - window.innerWidth,
        );
      }
      return found;
    };
    const rows = () =>
      page.$$eval('table.cells tbody tr', (n) => n.map((tr) => tr.children[0].textContent));
    const out = { load: await cpu(), all: (await rows()).length };
    out.charts = await page.locator('[data-kind=overlay] figure').count();
    await page.getByLabel('method', { exact: true }).selectOption('goldimask-d');
    out.filtered = [...new Set(await rows())];
    out.lines = await page.locator('[data-kind=overlay] figure path.line').count();
    out.filter = (await cpu()) - out.load;
    await page.getByLabel('method', { exact: true }).selectOption('');
    await page.getByRole('button', { name: 'average' }).click();
    out.best = (await rows())[0];
    await page.getByLabel('search').fill('failed memory');
    out.failed = await page.$$eval('table.cells tbody tr', (n) => n.map((x) => x.textContent));
    await page.getByLabel('search').fill('');
    const answers = () =>
      page.$$eval('[data-answer]', (n) => n.map((x) => [x.dataset.answer, x.textContent]));
    out.answers = await answers();
    await page.locator('[data-kind=answers] button[aria-pressed=false]').first().click();
    out.more = (await answers()).length;
    await page.getByRole('button', { name: 'next' }).click();
    out.next = await page.getByLabel('problem', { exact: true }).inputValue();
    out.links = await page.$$eval('table.cells a', (n) => n.map((x) => x.getAttribute('href')));
    out.overflow = await overflow();
    out.unnamed = await page.$$eval(
      'button, select, input',
      (n) => n.filter((x) => !(x.getAttribute('aria-label') || x.textContent.trim())).length,
    );
    return out;
  },
  async long(page, cpu) {
    const settle = () =>
      page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0))));
    await settle();
    const load = await cpu();
    await setSlider(page, 'reveal', 3);
    await settle();
    const slide = await cpu();
    await page.locator('.strip .tok.revealed').first().focus();
    await settle();
    const focus = await cpu();
    return {
      tokens: await page.locator('.strip .tok').count(),
      load,
      slide: slide - load,
      focus: focus - slide,
    };
  },
};

const browser = await launch();
const page = await browser.newPage({
  viewport: { width: 1200, height: 900 },
  colorScheme: 'light',
});
const problems = [],
  requests = [];
page.on('console', (m) => {
  if (['error', 'warning'].includes(m.type())) problems.push(m.text());
});
page.on('pageerror', (e) => problems.push(String(e)));
page.on('request', (r) => {
  if (!r.url().startsWith('file:')) requests.push(r.url());
});
// milliseconds of CPU time of the page's main thread, which a busy machine does not change
const session = await page.context().newCDPSession(page);
await session.send('Performance.enable', { timeDomain: 'threadTicks' });
const cpu = async () =>
  Math.round(
    1000 *
      (await session.send('Performance.getMetrics')).metrics.find((m) => m.name === 'TaskDuration')
        .value,
  );
const began = Date.now();
await open(page, file);
const ready = Date.now() - began;
const result = await scripts[name](page, cpu);
const hit = await page.evaluate(() => (window.hit === undefined ? null : window.hit));
await browser.close();
console.log(JSON.stringify({ ...result, problems, requests, hit, ready }));
