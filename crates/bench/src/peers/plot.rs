//! Draws the results as SVG: a row for each workload, a dot for each system, on a logarithmic axis.

use super::results::{PeerResults, SampleSpread};
use super::tables::{label, number};

/// The pixels of the parts of a plot.
const WIDTH: f64 = 900.0;
const LEFT: f64 = 250.0;
const RIGHT: f64 = 860.0;
const TOP: f64 = 84.0;
const ROW: f64 = 30.0;
/// How far the dots of systems lie apart within a row, so that none hides another.
const APART: f64 = 5.0;

/// The systems with the classes of their colours.
const SYSTEMS: &[(&str, &str)] =
    &[("tenure", "t"), ("etcd", "e"), ("zookeeper", "z"), ("redis", "r")];

/// Colours with at least 4.5 to 1 of contrast against the background, bright and dark.
const STYLE: &str = "\
.bg{fill:#ffffff;stroke:#d0d7de}.ink{fill:#1f2328}.dim{fill:#59636e}.line{stroke:#d0d7de}
.t{fill:#0969da;stroke:#0969da}.e{fill:#8250df;stroke:#8250df}
.z{fill:#9a6700;stroke:#9a6700}.r{fill:#cf222e;stroke:#cf222e}
@media (prefers-color-scheme: dark){
.bg{fill:#0d1117;stroke:#3d444d}.ink{fill:#f0f6fc}.dim{fill:#9198a1}.line{stroke:#3d444d}
.t{fill:#4493f8;stroke:#4493f8}.e{fill:#ab7df8;stroke:#ab7df8}
.z{fill:#d29922;stroke:#d29922}.r{fill:#f85149;stroke:#f85149}}";

/// A plot of one metric over the workloads of a kind.
pub(crate) struct ResultPlot {
    /// The name of its file.
    pub(crate) file: &'static str,
    pub(crate) title: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) metric: &'static str,
    pub(crate) unit: &'static str,
}

/// Every plot of the page.
pub(crate) const PLOTS: &[ResultPlot] = &[
    ResultPlot {
        file: "cycles.svg",
        title: "Acquire and release of free locks: cycles per second",
        kind: "cycles",
        metric: "per_s",
        unit: "/s",
    },
    ResultPlot {
        file: "cpu.svg",
        title: "CPU of all processes per cycle, in µs",
        kind: "cycles",
        metric: "cpu_us",
        unit: " µs",
    },
    ResultPlot {
        file: "handover.svg",
        title: "One lock that many want: gap between release and next grant, p50 in ms",
        kind: "handover",
        metric: "p50_ms",
        unit: " ms",
    },
];

/// A workload, and the spread of each system that has one.
type PlotRow = (String, Vec<(&'static str, &'static str, SampleSpread)>);

/// Draws a plot and describes it in words; `None` if there is nothing to draw.
pub(crate) fn draw(results: &PeerResults, plot: &ResultPlot) -> Option<(String, String)> {
    let rows = rows(results, plot);
    let values = || rows.iter().flat_map(|(_, dots)| dots.iter().map(|(_, _, it)| it));
    let least = values().map(|it| it.min).fold(f64::INFINITY, f64::min);
    let most = values().map(|it| it.max).fold(0.0, f64::max);
    if !(least > 0.0 && least.is_finite() && most > 0.0) {
        return None;
    }
    // Whole powers of ten, at least one.
    let from = least.log10().floor();
    let to = most.log10().ceil().max(from + 1.0);
    let x = |value: f64| LEFT + (RIGHT - LEFT) * (value.log10() - from) / (to - from);
    let described = describe(&rows, plot);
    let height = TOP + ROW * rows.len() as f64 + 40.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-labelledby=\"t d\" \
         font-family=\"system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\" font-size=\"13\">\n\
         <title id=\"t\">{}</title>\n<desc id=\"d\">{described}</desc>\n<style>\n{STYLE}\n</style>\n\
         <rect class=\"bg\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n\
         <text class=\"ink\" x=\"20\" y=\"28\" font-weight=\"600\">{}</text>\n",
        plot.title,
        WIDTH - 1.0,
        height - 1.0,
        plot.title
    );
    legend(&mut svg, results);
    let bottom = TOP + ROW * rows.len() as f64;
    let mut power = from;
    while power <= to {
        let (at, value) = (x(10_f64.powf(power)), number(10_f64.powf(power)));
        svg.push_str(&format!(
            "<line class=\"line\" x1=\"{at:.1}\" y1=\"{}\" x2=\"{at:.1}\" y2=\"{bottom}\"/>\
             <text class=\"dim\" x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{value}</text>\n",
            TOP - 8.0,
            bottom + 20.0
        ));
        power += 1.0;
    }
    for (at, (workload, dots)) in rows.iter().enumerate() {
        let y = TOP + ROW * (at as f64 + 0.5);
        svg.push_str(&format!(
            "<text class=\"ink\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{workload}</text>\n",
            LEFT - 14.0,
            y + 4.0
        ));
        for (order, (name, class, it)) in dots.iter().enumerate() {
            let y = y + APART * (order as f64 - (dots.len() as f64 - 1.0) / 2.0);
            svg.push_str(&format!(
                "<g class=\"{class}\"><title>{name}: {}{}</title><line x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" \
                 y2=\"{y:.1}\" stroke-width=\"2\"/><circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\" stroke=\"none\"/></g>\n",
                number(it.median),
                plot.unit,
                x(it.min),
                x(it.max),
                x(it.median)
            ));
        }
    }
    svg.push_str("</svg>\n");
    Some((svg, described))
}

fn rows(results: &PeerResults, plot: &ResultPlot) -> Vec<PlotRow> {
    let mut rows: Vec<PlotRow> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for sample in &results.samples {
        let is_kind = sample.workload.split('-').next() == Some(plot.kind);
        if !is_kind || seen.contains(&sample.workload.as_str()) {
            continue;
        }
        seen.push(&sample.workload);
        let dot = |(name, class): &(&'static str, &'static str)| {
            Some((*name, *class, results.spread(name, &sample.workload, plot.metric)?))
        };
        rows.push((label(&sample.workload), SYSTEMS.iter().filter_map(dot).collect()));
    }
    rows
}

fn legend(svg: &mut String, results: &PeerResults) {
    let mut at = 26.0;
    for (name, class) in SYSTEMS {
        if !results.systems.iter().any(|(it, _)| it == name) {
            continue;
        }
        svg.push_str(&format!(
            "<circle class=\"{class}\" cx=\"{at}\" cy=\"50\" r=\"5\"/>\
             <text class=\"ink\" x=\"{}\" y=\"54\">{name}</text>\n",
            at + 11.0
        ));
        at += 110.0;
    }
    svg.push_str(&format!(
        "<text class=\"dim\" x=\"{at}\" y=\"54\">dots: medians; lines: all repetitions; logarithmic</text>\n"
    ));
}

/// Every value in words, for readers who do not see the picture.
fn describe(rows: &[PlotRow], plot: &ResultPlot) -> String {
    let row = |(workload, dots): &PlotRow| {
        let dot = |(name, _, it): &(&str, &str, SampleSpread)| {
            format!("{name} {}{}", number(it.median), plot.unit)
        };
        let dots: Vec<String> = dots.iter().map(dot).collect();
        format!("{workload}: {}.", dots.join(", "))
    };
    rows.iter().map(row).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::results::{PeerSample, SampleMetrics, SampleOutcome};
    use super::super::system::PeerDescription;
    use super::*;

    #[test]
    fn a_plot_has_a_dot_for_each_system_and_says_its_values() {
        let mut results = PeerResults::default();
        for (system, value) in [("tenure", 1_000.0), ("etcd", 20.0)] {
            results.systems.push((system.to_owned(), PeerDescription::default()));
            let mut metrics = SampleMetrics::default();
            metrics.add("per_s", value);
            let (system, workload) = (system.to_owned(), "cycles-1x1".to_owned());
            let outcome = SampleOutcome::Measured(metrics);
            results.samples.push(PeerSample { system, workload, repetition: 0, outcome });
        }
        let (svg, described) = draw(&results, &PLOTS[0]).unwrap();
        assert_eq!(svg.matches("<circle").count(), 4, "two in the legend, two in the plot");
        assert_eq!(described, "1 client, 1 connection: tenure 1,000/s, etcd 20/s.");
        assert!(svg.contains("<line class=\"line\" x1=\"250.0\""), "the axis begins at ten");
        assert!(draw(&results, &PLOTS[1]).is_none(), "there is no such metric");
    }
}
