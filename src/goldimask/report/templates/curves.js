// Training curves: one chart per measure, one line per run or method.
GM.kinds.curves = (box, data) => {
  const grid = GM.el('div', { class: 'grid wide' });
  for (const chart of data.charts) grid.append(GM.curve(chart));
  box.append(grid);
};
GM.curve = (chart) => {
  const all = chart.lines.flatMap((line) => line.points);
  const xs = all.map((p) => p[0]), ys = all.map((p) => p[1]);
  const min = GM.low(ys), max = GM.high(ys), pad = (max - min) * 0.06 || 0.05;
  const label = `${chart.name} by ${chart.x || 'step'}: ` + chart.lines.filter((l) => l.points.length)
    .map((l) => `${l.name} from ${GM.num(l.points[0][1])} to ${GM.num(l.points[l.points.length - 1][1])}`).join('; ');
  const svg = GM.chart({
    width: 480, height: 240, label,
    x: { min: GM.low(xs), max: GM.high(xs), label: chart.x || 'step' },
    y: { min: min - pad, max: max + pad, label: chart.y || chart.name },
    layers: chart.lines.map((line, i) => ({ line: line.points, class: GM.series(i), points: chart.markers || line.points.length === 1 ? line.points.map((q) => ({ x: q[0], y: q[1], class: `s-fill${i % 6}` })) : [] })),
  });
  return GM.figure(chart.name, chart.note, svg, GM.legend(chart.lines.map((l) => l.name)));
};
GM.low = (list) => list.reduce((a, b) => Math.min(a, b), Infinity);
GM.high = (list) => list.reduce((a, b) => Math.max(a, b), -Infinity);
GM.kinds.figure = GM.kinds.curves;
