// All methods at one noise level: a lane of cells for each, and a table of their figures.

import { button, el, svg } from './dom.mjs';
import { comparison, lanePaths } from './step_summary.mjs';
import { table } from './table.mjs';

/** @import { StepView } from './step_model.mjs' */

/**
 * @param {StepView[]} views
 * @param {number} chosen
 * @param {(i: number) => void} onpick
 */
export const lanes = (views, chosen, onpick) =>
  el(
    'div',
    { class: 'lanes' },
    views.flatMap((view, m) => [
      button({ text: view.record.method, 'aria-pressed': String(m === chosen) }, () => onpick(m)),
      lane(view),
    ]),
  );

/** @param {StepView} view */
const lane = (view) => {
  const { cells, paths } = lanePaths(view);
  const { method, order, targets } = view.record;
  const attrs = {
    viewBox: `0 0 ${cells} 1`,
    preserveAspectRatio: 'none',
    role: 'img',
    'aria-label': `${method}: ${order.length} revealed, ${targets.length} targets`,
  };
  return svg(
    'svg',
    attrs,
    paths.map(([state, d]) => d && svg('path', { class: state, d })),
  );
};

/**
 * @param {StepView[]} views
 * @param {number} chosen
 */
export const comparisonTable = (views, chosen) => {
  const { columns, rows } = comparison(views);
  return table('All methods on the same draws', columns, rows, { on: chosen });
};
