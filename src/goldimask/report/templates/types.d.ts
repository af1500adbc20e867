// The data that Python puts on a page (step_page.py, decode_page.py, demo_page.py, cells.py),
// and what the pure modules hand to those that draw.

export interface Page {
  title: string;
  subtitle: string;
  sections: Section[];
}

export interface Section {
  kind: string;
  title: string;
  note: string;
  data: unknown;
}

// ---- tokens

/** Text as it is, or a mark: its glyph and its spoken name. */
export type Run = ['t', string] | ['m', string, string];

export interface Token {
  id: number;
  runs: Run[];
  special?: boolean;
}

export interface TokenTable {
  vocab: Token[];
  index: number[];
}

// ---- one training step

export type TokenState = 'prompt' | 'visible' | 'candidate' | 'revealed' | 'target';

export interface StepsData {
  groups: StepGroup[];
  supporters: number;
  left_out: string;
  start: string;
}

export interface StepGroup {
  example: string;
  tokens: TokenTable & { prompt: number };
  probes: Probe[];
  records: StepRecord[];
}

export interface Probe {
  masked: number[];
  before: (number | null)[] | null;
  entropy: (number | null)[] | null;
}

export interface StepRecord {
  method: string;
  t: number;
  rho: number;
  length: number;
  loss: number | null;
  n_eff: number;
  cap: number | null;
  probe: number;
  order: number[];
  ordered: boolean;
  gains: number[] | null;
  targets: number[];
  after: number[];
  weight: number[];
  support: number[] | null;
  supporters: number[][] | null;
  objective: Objective | null;
}

export interface Objective extends Curves {
  own: boolean;
  priority: string;
  value: number;
  paths: Paths;
}

/** The shapes of priority and support. */
export interface Curves {
  a: number;
  b: number;
  support: string;
  s0: number;
  /** Points of priority and support where they are tabulated. */
  tables?: (number[][] | null)[];
}

/** F along the order of choice and along random orders, at the lengths `k`. */
export interface Paths {
  k: number[];
  own: number[];
  mean: number[];
  low: number[];
  high: number[];
  draws: number;
}

// ---- decoding

export interface DecodesData {
  groups: DecodeGroup[];
}

export interface DecodeGroup {
  prompt: TokenTable;
  models: Decode[];
}

export interface Decode {
  label: string;
  canvas: TokenTable;
  trace: DecodeStep[];
  decoder: string;
  tau: number | null;
  block: number | null;
  length: number;
  steps: number;
  complete: boolean;
  verdict: Verdict | null;
}

export interface DecodeStep {
  step: number;
  block: number;
  positions: number[];
  confidence: number[];
}

export interface Verdict {
  correct: boolean;
  extracted?: string | null;
  answer?: string | null;
}

// ---- results, curves, tables

export interface ResultsData {
  tasks: string[];
  rows: ResultRow[];
  facts: Record<string, Cell>;
}

export interface ResultRow {
  name: string;
  held_out: number | null;
  steps: number | null;
  gains?: Record<string, [number, number, number]>; // over the first row, with its interval
  tasks: Record<string, TaskScore>;
}

export interface TaskScore {
  accuracy: number;
  low?: number;
  high?: number;
  n?: number;
}

export interface CurvesData {
  charts: CurveChart[];
}

export interface CurveChart {
  name: string;
  x?: string;
  y?: string;
  note?: string;
  markers?: boolean;
  lines: { name: string; points: Point[] }[];
}

export type Cell = string | number | boolean | null;

export interface TableData {
  caption: string;
  columns: string[];
  rows: Cell[][];
  left?: number;
}

export interface TablesData {
  tables: (TableData & { title: string; note: string; open: boolean })[];
}

// ---- the runs of a report or a campaign

export interface CellsData {
  tasks: string[];
  cells: CampaignCell[];
}

export interface CampaignCell {
  row: string;
  label: string;
  backbone: string;
  corpus: string;
  seed: number | null;
  state: string;
  error: string;
  progress: string;
  scores: (number | null)[];
  average: number | null;
  calls: number | null;
  loss: number | null;
  hours: number | null;
  pages: { href: string; text: string }[];
}

/** Lines are [cell, measure, place in `grids`, values]. */
export interface OverlayData {
  measures: Record<string, string>;
  grids: number[][];
  lines: [cell: number, measure: string, grid: number, values: number[]][];
}

export type AnswerLine = [
  cell: number,
  correct: boolean,
  extracted: string | null,
  steps: number,
  text: string,
];

export interface Problem {
  panel: string;
  task: string;
  item: string;
  rows: AnswerLine[];
}

export interface AnswersData {
  problems: Problem[];
  start: string[];
}

// ---- charts, before they are drawn

export type Point = [x: number, y: number];

export interface Axis {
  min: number;
  max: number;
  label: string;
}

/** A dot; `i` is the token it stands for. */
export interface Dot {
  x: number;
  y: number;
  i?: number;
  r?: number;
  class?: string;
}

export interface Layer {
  class?: string;
  line?: Point[];
  band?: [x: number, low: number, high: number][];
  bars?: Point[];
  points?: Dot[];
  vertical?: number;
  horizontal?: number;
  note?: string;
}

export interface Chart {
  label: string;
  x: Axis;
  y: Axis;
  layers: Layer[];
  width?: number;
  height?: number;
}

export interface Figure {
  title: string;
  note?: string;
  chart: Chart;
  legend?: { name: string; class: string }[];
}
