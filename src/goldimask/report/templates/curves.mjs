// Draws training curves and sweeps.

import { drawnFigure } from './chart.mjs';
import { curveFigures } from './curve_figures.mjs';
import { el } from './dom.mjs';

/** @import { CurvesData } from './types' */

/** @param {HTMLElement} box @param {CurvesData} data */
export const drawCurves = (box, data) => {
  const figures = curveFigures(data.charts).map((figure) => drawnFigure(figure).box);
  box.append(el('div', { class: 'grid wide' }, figures));
};
