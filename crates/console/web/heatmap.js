// Draws a heat map: time to the right, rows downward, brighter is more.

/** Colours of the heat from none to most: even in lightness, so that they are read without their hues. */
const STOPS = {
  both: [[8, 12, 28], [36, 34, 92], [92, 41, 128], [160, 52, 120], [219, 84, 89], [248, 149, 64], [252, 226, 122]],
  reads: [[8, 14, 28], [16, 44, 82], [22, 84, 128], [34, 128, 160], [74, 172, 178], [148, 210, 190], [232, 246, 214]],
  writes: [[16, 10, 20], [66, 22, 34], [120, 36, 36], [176, 62, 30], [218, 104, 32], [244, 160, 62], [255, 228, 150]],
};

/** The colour of a heat from 0 to 1. */
export function colour(palette, heat) {
  const stops = STOPS[palette];
  const place = Math.min(1, Math.max(0, heat)) * (stops.length - 1);
  const at = Math.min(stops.length - 2, Math.floor(place));
  return stops[at].map((from, channel) => Math.round(from + (stops[at + 1][channel] - from) * (place - at)));
}

/** The columns of an answer at their times: a time without a column had no operations. */
export function layout(answer) {
  const first = Math.floor(answer.from / answer.seconds) * answer.seconds;
  const width = Math.max(1, Math.ceil((answer.to - first) / answer.seconds));
  const height = answer.starts.length;
  const places = new Map(answer.columns.map((start, column) => [Math.round((start - first) / answer.seconds), column]));
  return { first, width, height, places };
}

/** Operations of one place. */
export function operations(answer, { height, places }, column, row) {
  const at = places.get(column);
  if (at === undefined) return { reads: 0, writes: 0 };
  return { reads: answer.reads[at * height + row], writes: answer.writes[at * height + row] };
}

/** Draws into a canvas, which gets one pixel for each place; the browser makes them larger. */
export function draw(canvas, answer, kind) {
  const grid = layout(answer);
  canvas.width = grid.width;
  canvas.height = grid.height;
  const image = new ImageData(grid.width, grid.height);
  const value = (at) => (kind === "reads" ? answer.reads[at] : kind === "writes" ? answer.writes[at] : answer.reads[at] + answer.writes[at]);
  const most = answer.reads.reduce((most, _, at) => Math.max(most, value(at)), 0);
  // Logarithmic, so that warm ranges are seen next to hot ones.
  const scale = Math.log1p(most) || 1;
  const palette = kind === "both" ? "both" : kind;
  const cold = colour(palette, 0);
  for (let x = 0; x < grid.width; x += 1) {
    const column = grid.places.get(x);
    for (let y = 0; y < grid.height; y += 1) {
      const heat = column === undefined ? 0 : value(column * grid.height + y);
      const [red, green, blue] = heat === 0 ? cold : colour(palette, 0.1 + 0.9 * (Math.log1p(heat) / scale) ** 1.7);
      image.data.set([red, green, blue, 255], (y * grid.width + x) * 4);
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return { grid, most };
}

/** Draws the scale of colours. */
export function drawScale(canvas, kind) {
  canvas.width = 120;
  canvas.height = 1;
  const image = new ImageData(120, 1);
  for (let x = 0; x < 120; x += 1) image.data.set([...colour(kind, x / 119), 255], x * 4);
  canvas.getContext("2d").putImageData(image, 0, 0);
}
