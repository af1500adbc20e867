// Logged values of the cells that are kept, methods over each other.

import { overlayCharts, shared, valuesOf } from './cells_model.mjs';
import { drawnFigure } from './chart.mjs';
import { choice, list } from './controls.mjs';
import { curveFigures } from './curve_figures.mjs';
import { clear, el } from './dom.mjs';

/** @import { OverlayData } from './types' */

/** @param {HTMLElement} box @param {OverlayData} data */
export const drawOverlay = (box, data) => {
  const measures = Object.keys(data.measures);
  const names = valuesOf(shared.cells, 'row');
  let [measure, mean] = [measures[0], true];
  const grid = el('div', { class: 'grid charts' });
  const refresh = () => {
    const charts = overlayCharts(data, shared.cells, shared.kept, measure, mean);
    const drawn = curveFigures(charts, names).map((figure) => drawnFigure(figure).box);
    clear(
      grid,
      drawn.length ? drawn : el('p', { class: 'soft', text: 'No curve of these cells.' }),
    );
  };
  const titles = measures.map((key) => data.measures[key]);
  const pick = list('measure', titles, (i) => {
    measure = measures[i];
    refresh();
  });
  const how = choice('lines', ['mean over seeds', 'every run'], 0, (i) => {
    mean = i === 0;
    refresh();
  });
  box.append(el('div', { class: 'row' }, pick, how.box), grid);
  shared.listeners.push(refresh);
  refresh();
};
