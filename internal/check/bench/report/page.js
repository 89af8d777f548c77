"use strict";
// Draws the plots from the results in #data, and redraws them when the width or the colours change.
(() => {
  const runs = JSON.parse(document.getElementById("data").textContent);
  const many = runs.length > 1;
  const names = ["A", "B"];
  let colour;

  const colours = () => {
    const style = getComputedStyle(document.documentElement);
    const get = name => style.getPropertyValue("--" + name).trim();
    return { one: get("one"), oneSoft: get("one-soft"), two: get("two"), three: get("three"),
      bad: get("bad"), shade: get("shade"), quiet: get("quiet"), grid: get("grid"), card: get("card") };
  };

  const digits = n => Number(n.toPrecision(3)).toString();
  const time = us => us == null ? "–" : us < 1e3 ? digits(us) + " µs" : us < 1e6 ? digits(us / 1e3) + " ms" : digits(us / 1e6) + " s";
  const count = n => n == null ? "–" : n < 1e4 ? digits(n) : n < 1e6 ? digits(n / 1e3) + " k" : digits(n / 1e6) + " M";
  const second = s => s == null ? "–" : s.toFixed(1) + " s";

  const axis = options => Object.assign({
    stroke: colour.quiet, font: "12px system-ui, sans-serif",
    grid: { stroke: colour.grid, width: 1 }, ticks: { stroke: colour.grid, width: 1, size: 5 },
  }, options);

  // Shades the longest gap of each run, unless it is short, and draws a line for each new leader.
  const clamped = u => s => Math.min(u.bbox.left + u.bbox.width, Math.max(u.bbox.left, u.valToPos(s, "x", true)));
  const shadeGaps = u => {
    const { ctx, bbox } = u, x = clamped(u);
    ctx.save();
    ctx.fillStyle = colour.shade;
    for (const run of runs) {
      const gap = run.result.longest_gap;
      if (gap.length_s >= run.result.elapsed_s / 200 && gap.length_s >= 0.05) {
        ctx.fillRect(x(gap.at_s), bbox.top, x(gap.at_s + gap.length_s) - x(gap.at_s), bbox.height);
      }
    }
    ctx.restore();
  };
  const markLeaders = u => {
    if (many) return;
    const { ctx, bbox } = u, x = clamped(u), px = devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = colour.quiet;
    ctx.setLineDash([4, 4]);
    ctx.lineWidth = px;
    ctx.font = 11 * px + "px system-ui, sans-serif";
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    for (const turn of runs[0].result.leaders.slice(1)) {
      const at = x(turn.at_s), label = "leader " + turn.addr, width = ctx.measureText(label).width;
      const from = at > bbox.left + bbox.width * 0.8 ? at - 5 * px - width : at + 5 * px;
      ctx.beginPath();
      ctx.moveTo(at, bbox.top);
      ctx.lineTo(at, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillStyle = colour.card;
      ctx.fillRect(from, bbox.top + 2 * px, width, 15 * px);
      ctx.fillStyle = colour.quiet;
      ctx.fillText(label, from, bbox.top + 13 * px);
    }
    ctx.restore();
  };
  const events = { hooks: { drawClear: shadeGaps, drawAxes: markLeaders } };

  const plots = [];
  const plot = (id, options, data) => {
    const at = document.getElementById(id);
    options.width = at.clientWidth;
    options.height = options.height || 260;
    options.padding = [10, 36, 0, 0];
    options.legend = { markers: { dash: (u, i) => u.series[i].dash ? "dashed" : "solid" } };
    options.cursor = Object.assign({ drag: { x: true, y: false }, points: { size: 6 } }, options.cursor);
    plots.push(new uPlot(options, data, at));
  };

  // Returns the values of all runs with a common x axis.
  const align = perRun => {
    if (!many) return perRun[0];
    return uPlot.join(perRun);
  };

  const line = (label, stroke, options) => Object.assign({ label, stroke, width: 1.6, points: { show: false } }, options);
  const middle = i => i.at_s + i.length_s / 2;
  const logarithmic = values => {
    const present = values.flat().filter(v => v > 0);
    return { distr: 3, range: present.length ? [10 ** Math.floor(Math.log10(Math.min(...present))), 10 ** Math.ceil(Math.log10(Math.max(...present) * 1.01))] : [1, 10] };
  };
  // Keeps only 1, 10, 100, … of the nine splits of each decade.
  const decades = (u, splits) => splits.map(v => v > 0 && Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-9 ? v : null);
  const latencyAxis = () => axis({ size: 66, values: (u, v) => v.map(x => x == null ? "" : time(x)), filter: decades,
    grid: { stroke: colour.grid, width: 1, filter: decades }, ticks: { stroke: colour.grid, width: 1, size: 5, filter: decades } });
  const secondsAxis = () => axis({ size: 34, values: (u, v) => v.map(s => s + " s") });

  const latency = () => {
    const keys = many ? ["p50_us", "p99_us"] : ["p50_us", "p99_us", "max_us"];
    const data = align(runs.map(r => [r.intervals.map(middle), ...keys.map(k => r.intervals.map(i => i[k]))]));
    const series = [{ label: "time", value: (u, v) => second(v) }];
    const value = (u, v) => time(v);
    runs.forEach((run, n) => {
      const span = many ? { spanGaps: true } : {};
      const stroke = n === 0 ? colour.one : colour.two;
      const suffix = many ? " " + names[n] : "";
      series.push(line("p50" + suffix, stroke, Object.assign({ value }, span)));
      series.push(line("p99" + suffix, many ? stroke : colour.two, Object.assign({ value }, span, many ? { dash: [5, 4] } : {})));
      if (!many) series.push(line("max", colour.three, { value, width: 1 }));
    });
    plot("latency", { series, plugins: [events], scales: { x: { time: false }, y: logarithmic(data.slice(1)) },
      axes: [secondsAxis(), latencyAxis()] }, data);
  };

  const rate = () => {
    const data = align(runs.map(r => [r.intervals.map(middle), r.intervals.map(i => i.answers / i.length_s), r.intervals.map(i => i.errors ? i.errors / i.length_s : null)]));
    const series = [{ label: "time", value: (u, v) => second(v) }];
    const value = (u, v) => count(v);
    runs.forEach((run, n) => {
      const suffix = many ? " " + names[n] : "";
      const stroke = n === 0 ? colour.one : colour.two;
      series.push(line("answers" + suffix, stroke, { value, fill: many ? undefined : colour.oneSoft, spanGaps: many }));
      series.push(line("errors" + suffix, colour.bad, { value, width: 0, fill: colour.bad,
        paths: uPlot.paths.bars({ size: [0.9, 8, 2], align: 0 }), points: { show: false } }));
    });
    plot("rate", { height: 210, series, plugins: [events],
      scales: { x: { time: false }, y: { range: (u, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
      axes: [secondsAxis(), axis({ size: 66, values: (u, v) => v.map(count) })] }, data);
  };

  // With each unit of x the distance to 100 % shrinks to a tenth.
  const percentiles = () => {
    const data = align(runs.map(r => {
      const list = r.percentiles.filter(p => p.percentile < 100);
      return [list.map(p => -Math.log10(1 - p.percentile / 100)), list.map(p => p.latency_us)];
    }));
    const percent = x => Number((100 * (1 - 10 ** -x)).toFixed(Math.max(0, Math.ceil(x) - 1) + (x === Math.round(x) ? 0 : 2))) + " %";
    const end = Math.max(1, Math.ceil(Math.max(0, ...data[0])));
    const splits = [0, -Math.log10(0.5), ...Array.from({ length: end }, (_, i) => i + 1)];
    const series = [{ label: "percentile", value: (u, v) => v == null ? "–" : percent(v) }];
    runs.forEach((run, n) => series.push(line(many ? "latency " + names[n] : "latency", n === 0 ? colour.one : colour.two,
      { value: (u, v) => time(v), spanGaps: true, fill: many ? undefined : colour.oneSoft, width: 2 })));
    plot("percentiles", { series, scales: { x: { time: false, range: [0, end] }, y: logarithmic(data.slice(1)) },
      axes: [axis({ size: 34, splits: () => splits, values: (u, v) => v.map(percent) }), latencyAxis()] }, data);
  };

  const draw = () => {
    colour = colours();
    for (const p of plots.splice(0)) p.destroy();
    latency();
    rate();
    percentiles();
  };
  draw();
  let pending;
  addEventListener("resize", () => { clearTimeout(pending); pending = setTimeout(draw, 100); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
