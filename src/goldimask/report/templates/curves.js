// Training curves: one chart per measure, one line per run or method.
GM.kinds.curves = (box, data) => {
  const grid = GM.el('div', { class: 'grid wide' });
  // a run keeps its colour in every chart, also where another one is missing
  const names = [...new Set(data.charts.flatMap((chart) => chart.lines.map((line) => line.name)))];
  for (const chart of data.charts) grid.append(GM.curve(chart, names));
  box.append(grid);
};
GM.curve = (chart, names) => {
  const style = (line) => names.indexOf(line.name);
  const all = chart.lines.flatMap((line) => line.points);
  const xs = all.map((p) => p[0]), ys = all.map((p) => p[1]);
  const min = GM.low(ys), max = GM.high(ys), pad = (max - min) * 0.06 || 0.05;
  const label = `${chart.name} by ${chart.x || 'step'}: ` + chart.lines.filter((l) => l.points.length)
    .map((l) => `${l.name} from ${GM.num(l.points[0][1])} to ${GM.num(l.points[l.points.length - 1][1])}`).join('; ');
  const svg = GM.chart({
    width: 320, height: 190, label,
    x: { min: GM.low(xs), max: GM.high(xs), label: chart.x || 'step' },
    y: { min: min - pad, max: max + pad, label: chart.y && chart.y !== chart.name ? chart.y : '' },
    layers: chart.lines.map((line) => ({ line: line.points, class: GM.series(style(line)), points: chart.markers || line.points.length === 1 ? line.points.map((q) => ({ x: q[0], y: q[1], class: `s-fill${style(line) % 6}` })) : [] })),
  });
  return GM.figure(chart.name, chart.note, svg, GM.legend(chart.lines.map((l) => l.name), chart.lines.map((l) => GM.series(style(l)))));
};
GM.low = (list) => list.reduce((a, b) => Math.min(a, b), Infinity);
GM.high = (list) => list.reduce((a, b) => Math.max(a, b), -Infinity);
GM.kinds.figure = GM.kinds.curves;
