/** What the scripts of the page share besides the payload. */

import type { Estimate, Page, SettingEntry, ShiftEntry } from "../payload";

export type * from "../payload";

/** One tab of the page. It is built when first looked at; `build` returns what draws it again after a choice. */
export interface Section<Data> {
  id: string;
  title: string;
  /** Tabs stand in this order. */
  order: number;
  /** The part of the payload that it shows; the tab is left out if there is none. */
  data(page: Page): Data | null | undefined;
  build(host: HTMLElement, data: Data): () => void;
}

// Nodes

export type Child = Node | string | number | false | null | undefined | Child[];
export type Listeners = { [K in keyof GlobalEventHandlersEventMap]?: (event: GlobalEventHandlersEventMap[K]) => void };
export interface Attributes {
  on?: Listeners;
  [name: string]: string | number | boolean | null | undefined | Listeners;
}

// Tables

export type CsvRow = (string | number | null | undefined)[];
export interface Order {
  key: string;
  down: boolean;
}
export interface Sortable<Row> {
  key: string;
  /** Sorts; a missing value always comes last. */
  value(row: Row): string | number | null;
}
export interface TableColumn<Row> extends Sortable<Row> {
  heading: string;
  title?: string;
  numeric?: boolean;
  /** Left out where it is narrow. */
  optional?: boolean;
  /** The best value is the lowest: the first click sorts ascending. */
  low?: boolean;
  /** What is shown: the first text large, the others small. */
  texts?(row: Row): string[];
  bold?(row: Row): boolean;
  /** Makes the text a button. */
  onPick?(row: Row): void;
}
export interface Table<Row> {
  node: HTMLElement;
  show(rows: Row[], columns: TableColumn<Row>[]): void;
  /** All rows in the current order. */
  rows(): Row[];
}

// Charts

export type Interval = [number, number];
export type ScaleName = "logit" | "probit" | "linear";
export interface Scale {
  name: ScaleName;
  forward(value: number): number;
  inverse(place: number): number;
  /** Whether 0 and 1 have a finite place. */
  holdsEnds: boolean;
}
/** `low` and `high` are places on the scale, `from` and `to` the pixels that they get. */
export interface Axis {
  scale: Scale;
  low: number;
  high: number;
  from: number;
  to: number;
  place(value: number): number;
  placeScaled(place: number): number;
  scaledAt(pixel: number): number;
}
export interface Limits {
  x: Interval;
  y: Interval;
}
export interface Side {
  axis: Axis;
  /** Values are shown this many times as large: 100 for percentages. */
  times: number;
  ticks: number[];
  text(tick: number): string;
  label: string;
}
export interface Canvas {
  chart: SVGSVGElement;
  /** A group that is clipped to the frame. */
  plot: SVGElement;
}
/** A place of a chart that can be hovered, in the chart's own units. */
export interface Target {
  px: number;
  py: number;
  group: string;
  label: string;
  tip(): Node[];
}
export interface CurvePoint {
  x: number;
  y: number;
  low: number | null;
  high: number | null;
  label: string;
  tip(): Node[];
}
export interface Curve {
  name: string;
  index: number;
  faded?: boolean;
  points: (CurvePoint | null)[];
}
export type TipRow = [what: string, value: string, small?: string];

// The study of one pair of axes

export interface Line {
  reason?: undefined;
  scale: Scale;
  level: number;
  slope: number;
  intercept: number;
  r2: number | null;
  n: number;
  names: string[];
  range: Interval;
  scatter: number;
  centre: number;
  spread: number;
  /** Student's quantile of the level, with two degrees of freedom fewer than models. */
  quantile: number;
  slopeInterval: Interval;
  interceptInterval: Interval;
  notes: string[];
}
export interface NoLine {
  reason: string;
}
/** A stretch of the x axis and its line; `side` is "below" or "above" a pivot, or "" for the whole axis. */
export interface Part {
  from: number;
  to: number;
  side: string;
  line: Line | NoLine;
}
export interface Effective {
  expected: number;
  rho: number;
  low: number;
  high: number;
  extrapolated: boolean;
}
export interface Relative {
  tau: number;
  low: number | null;
  high: number | null;
}
/** A model with numbers on both axes. */
export interface Point {
  name: string;
  own: boolean;
  category: string;
  baseModel: string;
  x: Estimate;
  y: Estimate;
  /** Whether the line may go through it. */
  candidate: boolean;
  /** Whether it is above the least x of the shift. */
  above: boolean;
  /** Whether both numbers have a place on the scale. */
  placed: boolean;
  shown: boolean;
  fitted: boolean;
  effective: Effective | null;
  relative: Relative | null;
}
export interface Choice {
  x: string;
  y: string;
  scale: ScaleName;
  showAll: boolean;
}
export interface Study {
  xSetting: SettingEntry;
  ySetting: SettingEntry;
  shift: ShiftEntry | null;
  scale: Scale;
  level: number;
  inPercent: boolean;
  baseline: string;
  minX: number | null;
  pivot: number | null;
  points: Point[];
  /** Models without a number on one of the axes. */
  missing: string[];
  parts: Part[];
  notes: string[];
}
/** What the scatter plot shows; `key` changes with the axes. */
export interface View {
  key: string;
  study: Study;
  slots: Map<string, number>;
  hidden: Set<string>;
  query: string;
}
export interface Spot {
  px: number;
  py: number;
  /** The turn of the arrow of a model that the scale has no place for. */
  edge: number | null;
}
export interface PointTarget extends Target, Spot {
  point: Point;
  matched: boolean;
}

// Controls and charts in detail

export interface Combobox {
  node: HTMLElement;
  input: HTMLInputElement;
  set(name: string): void;
}
export interface SideOptions {
  /** The least distance of two ticks, in pixels. */
  gap?: number;
  times?: number;
  label?: string;
  text?(tick: number): string;
  /** The ticks themselves, instead of even ones. */
  values?: number[] | null;
}
export interface Exploring<T extends Target> {
  /** Where the keyboard begins. */
  start?: T | null;
  onEnter?(target: T): void;
  /** May take a key for itself. */
  onKey?(event: KeyboardEvent, target: T | null): boolean;
  /** Stops the pointer. */
  paused?(): boolean;
}
