//! Draws latency percentiles as an SVG.

use std::fmt::Write;

use super::times::LatencyCounts;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const COLOURS: [&str; 6] = ["#1b6ca8", "#d1495b", "#2e933c", "#8d6a9f", "#e09f3e", "#444444"];
/// The percentiles at which a curve has points.
const PERCENTS: [f64; 12] =
    [0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];
/// The percentiles with a label on the x axis.
const NAMED: [f64; 5] = [0.0, 50.0, 90.0, 99.0, 99.9];

/// Latency over percentile: each step to the right is ten times rarer. One curve per series.
pub(super) fn svg(title: &str, series: &[(String, &LatencyCounts)]) -> String {
    let most = series.iter().map(|(_, times)| times.percentile_us(99.99)).max().unwrap_or(1).max(1);
    let least = series.iter().map(|(_, times)| times.percentile_us(0.0)).min().unwrap_or(1).max(1);
    // The y axis spans whole powers of ten around all values.
    let (low, high) = ((least as f64).log10().floor(), (most as f64).log10().ceil());
    let high = if high > low { high } else { low + 1.0 };
    let x = |percent: f64| {
        let rare = -(1.0 - percent / 100.0).max(1e-4).log10() / 4.0;
        LEFT + rare * (WIDTH - LEFT - RIGHT)
    };
    let y = |us: f64| {
        let part = (us.max(1.0).log10() - low) / (high - low);
        HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)
    };
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{}</text>\n",
        escaped(title)
    );
    grid(&mut text, (low, high), &x, &y);
    for (at, (name, times)) in series.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let points = PERCENTS.map(|percent| {
            let us = times.percentile_us(percent) as f64;
            format!("{:.1},{:.1}", x(percent), y(us))
        });
        let (points, label_y) = (points.join(" "), TOP + 20.0 * at as f64 + 12.0);
        let label_x = WIDTH - RIGHT + 16.0;
        let _ = write!(
            text,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <text x=\"{label_x}\" y=\"{label_y}\" fill=\"{colour}\">{}</text>\n",
            escaped(name)
        );
    }
    text.push_str("</svg>\n");
    text
}

fn grid(
    text: &mut String,
    (low, high): (f64, f64),
    x: &impl Fn(f64) -> f64,
    y: &impl Fn(f64) -> f64,
) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let mut power = low;
    while power <= high {
        let (us, line) = (10_f64.powf(power), y(10_f64.powf(power)));
        let name = if us >= 1e6 {
            format!("{} s", us / 1e6)
        } else if us >= 1e3 {
            format!("{} ms", us / 1e3)
        } else {
            format!("{us} µs")
        };
        let _ = write!(
            text,
            "<line x1=\"{LEFT}\" y1=\"{line:.1}\" x2=\"{right}\" y2=\"{line:.1}\" stroke=\"#dddddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>\n",
            LEFT - 6.0,
            line + 4.0
        );
        power += 1.0;
    }
    for percent in NAMED {
        let (at, below) = (x(percent), bottom + 18.0);
        let _ = write!(
            text,
            "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#eeeeee\"/>\n\
             <text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{percent} %</text>\n"
        );
    }
    let _ = writeln!(
        text,
        "<text x=\"{LEFT}\" y=\"{:.1}\">so many of a hundred take at most this long</text>",
        HEIGHT - 10.0
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_has_a_curve_and_a_name_for_each_series() {
        let mut times = LatencyCounts::default();
        (1..2_000).for_each(|us| times.add(us));
        let empty = LatencyCounts::default();
        let text =
            svg("a < b", &[("1 clients".to_owned(), &times), ("2 clients".to_owned(), &empty)]);
        assert_eq!(text.matches("<polyline").count(), 2);
        assert!(text.contains("a &lt; b") && text.contains("1 clients") && text.contains("99.9 %"));
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert_eq!(text.matches('<').count(), text.matches('>').count());
    }
}
