// One record, indexed by position. The numbers are those of the StepOutput; nothing is recomputed but phi and lambda.
GM.stepView = (group, record) => {
  const probe = group.probes[record.probe];
  const index = (list) => new Map(list.map((position, i) => [position, i]));
  const masked = index(probe.masked), target = index(record.targets), rank = index(record.order);
  const supports = new Map(); // revealed position -> [[target, attention], ...]
  (record.supporters || []).forEach((line, i) => {
    for (let j = 0; j < line.length; j += 2) {
      if (!supports.has(line[j])) supports.set(line[j], []);
      supports.get(line[j]).push([record.targets[i], line[j + 1]]);
    }
  });
  for (const list of supports.values()) list.sort((a, b) => b[1] - a[1]);
  const last = record.order.length;
  const view = { group, record, probe, masked, target, rank, supports, last };
  view.state = (i, k) => {
    if (i < group.tokens.prompt) return 'prompt';
    if (!masked.has(i)) return 'visible';
    const chosen = rank.get(i);
    if (chosen !== undefined) return chosen < k ? 'revealed' : 'candidate';
    return k >= last && target.has(i) ? 'target' : 'candidate';
  };
  view.before = (i) => (probe.before ? probe.before[masked.get(i)] : null);
  view.entropy = (i) => (probe.entropy ? probe.entropy[masked.get(i)] : null);
  view.after = (i) => (target.has(i) ? record.after[target.get(i)] : null);
  view.weight = (i) => (target.has(i) ? record.weight[target.get(i)] : null);
  view.mass = (i) => (record.support && target.has(i) ? record.support[target.get(i)] : null);
  view.supporters = (i) => {
    if (!record.supporters || !target.has(i)) return [];
    const line = record.supporters[target.get(i)], out = [];
    for (let j = 0; j < line.length; j += 2) out.push([line[j], line[j + 1]]);
    return out;
  };
  // who is connected with position i at slider position k: [position, attention] pairs
  view.links = (i, k) => {
    const state = view.state(i, k);
    if (state === 'target') return view.supporters(i);
    return state === 'revealed' && k >= last ? supports.get(i) || [] : [];
  };
  view.top = Math.max(1, ...record.weight.slice(0, 20000));
  return view;
};

GM.priority = (o, p) => p ** o.a * (1 - p) ** o.b;
GM.support = (o, s) => (o.support === 'linear' ? s : s / (s + o.s0));
