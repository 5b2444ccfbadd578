//! The figures as one HTML file that needs nothing else: tables, and charts as SVG.

use std::fmt::Write;

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{
    figures::{Figures, Spread},
    shape::Checked,
    text::{about, disk, how, ms, percent},
};

const WIDTH: u32 = 1000;
const INK: RGBColor = RGBColor(38, 50, 56);
const GRID: RGBColor = RGBColor(226, 230, 233);
const MAIN: RGBColor = RGBColor(21, 101, 192);
const SOFT: RGBColor = RGBColor(187, 213, 240);
const ALARM: RGBColor = RGBColor(198, 40, 40);
/// How many other copies WAIT counted: none, one, two and so on.
const COPIES: [RGBColor; 5] = [
    RGBColor(239, 154, 154),
    RGBColor(255, 213, 132),
    RGBColor(129, 199, 132),
    RGBColor(77, 182, 172),
    RGBColor(100, 181, 246),
];

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #263238; background: #f4f6f8; margin: 0; }
main { max-width: 1060px; margin: 0 auto; padding: 28px 24px 48px; }
h1 { font-size: 26px; margin: 0 0 2px; } h2 { font-size: 18px; margin: 0 0 10px; }
p { margin: 6px 0; } .soft { color: #607d8b; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 12px; margin: 18px 0; }
.tile, section { background: #fff; border: 1px solid #e2e6e9; border-radius: 8px; }
.tile { padding: 12px 16px; } .tile b { display: block; font-size: 24px; color: #1565c0; }
section { padding: 18px 20px; margin: 14px 0; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin-top: 6px; }
th, td { text-align: right; padding: 4px 10px; border-bottom: 1px solid #edf0f2; font-variant-numeric: tabular-nums; }
th { font-weight: 600; color: #546e7a; } th:first-child, td:first-child { text-align: left; padding-left: 0; }
svg { width: 100%; height: auto; } .bad { color: #c62828; font-weight: 600; }
";

/// The page.
pub(crate) fn page(shape: &Checked, figures: &Figures) -> String {
    let mut out = String::new();
    let title = escaped(&shape.title);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head>\n\
         <body><main>\n<h1>{title}</h1>\n<p class=\"soft\">{}</p>\n",
        escaped(&about(shape, figures))
    );
    for violation in &figures.violations {
        let _ = writeln!(out, "<p class=\"bad\">A promise was broken: {}</p>", escaped(violation));
    }
    tiles(&mut out, figures);
    section(&mut out, "Answered appends over time", &drawn(WIDTH, 300, |area| over_time(area, figures)));
    let gaps = drawn(WIDTH, 70 + 34 * figures.gaps.len() as u32, |area| gaps(area, figures));
    section(&mut out, "Failover gap of each fault", &format!("{gaps}{}", gap_table(figures)));
    if !figures.waits.is_empty() {
        let chart = drawn(WIDTH, 60 + 34 * figures.waits.len() as u32, |area| waits(area, figures));
        section(
            &mut out,
            "What WAIT counts within its time limit",
            &format!("{chart}{}", wait_table(figures)),
        );
    }
    if !figures.bound.is_empty() {
        let chart = drawn(WIDTH, 300, |area| bound(area, figures));
        let text = format!("{chart}{}<p>The disk: {}.</p>", bound_table(figures), escaped(&disk(figures)));
        section(&mut out, "What disk and network allow", &text);
    }
    let _ = writeln!(out, "<p class=\"soft\">{}</p>\n</main></body></html>", how(shape));
    out
}

fn section(out: &mut String, title: &str, inside: &str) {
    let _ = writeln!(out, "<section><h2>{title}</h2>\n{inside}\n</section>");
}

fn tiles(out: &mut String, figures: &Figures) {
    let gaps = &figures.all_gaps;
    let tiles = [
        (ms(gaps.p50_ms), "failover gap, median"),
        (ms(gaps.p99_ms), "failover gap, p99"),
        (ms(figures.appends.p50_ms), "append, median"),
        (percent(figures.redelivered, figures.entries), "of the entries delivered again"),
        (format!("{:.0} %", 100.0 * figures.disk_busy), "of the busiest disk's time"),
    ];
    out.push_str("<div class=\"tiles\">");
    for (figure, what) in tiles {
        let _ = write!(out, "<div class=\"tile\"><b>{figure}</b>{what}</div>");
    }
    out.push_str("</div>\n");
}

fn row(out: &mut String, cells: &[String], tag: &str) {
    out.push_str("<tr>");
    for cell in cells {
        let _ = write!(out, "<{tag}>{cell}</{tag}>");
    }
    out.push_str("</tr>\n");
}

fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut out = String::from("<table>\n");
    row(&mut out, &head.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>(), "th");
    for cells in rows {
        row(&mut out, &cells, "td");
    }
    out.push_str("</table>");
    out
}

fn gap_table(figures: &Figures) -> String {
    let rows = figures.gaps.iter().chain([&figures.all_gaps, &figures.other_shards]);
    table(
        &["fault", "shards", "p50", "p99", "longest"],
        rows.map(|Spread { name, count, p50_ms, p99_ms, longest_ms, .. }| {
            vec![escaped(name), count.to_string(), ms(*p50_ms), ms(*p99_ms), ms(*longest_ms)]
        }),
    )
}

fn wait_table(figures: &Figures) -> String {
    let most = figures.waits.values().map(Vec::len).max().unwrap_or(0);
    let mut head = vec!["limit".to_owned()];
    head.extend((0..most).map(|copies| format!("{copies} other copies")));
    head.push("calls".to_owned());
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let rows = figures.waits.iter().map(|(limit, counts)| {
        let all = counts.iter().sum::<u64>();
        let mut cells = vec![format!("{limit} ms")];
        cells.extend(counts.iter().map(|count| percent(*count, all)));
        cells.push(all.to_string());
        cells
    });
    table(&head, rows)
}

fn bound_table(figures: &Figures) -> String {
    let rows = figures.bound.iter().map(|(writers, bound)| {
        let per_second = format!("{:.0}", bound.per_second);
        vec![writers.to_string(), per_second, ms(bound.p50), ms(bound.p99), format!("{:.1}", bound.per_sync)]
    });
    table(&["writers at once", "writes/s", "p50", "p99", "writes a sync"], rows)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A chart as SVG. Into a string nothing can fail; if it does, the page says so.
fn drawn(width: u32, height: u32, draw: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let mut svg = String::new();
    let end = {
        let area = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        draw(&area).and_then(|()| area.present().map_err(Into::into))
    };
    match end {
        Ok(()) => svg,
        Err(error) => format!("<p class=\"bad\">no chart: {}</p>", escaped(&error.to_string())),
    }
}

fn font(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// A round number that is not below `value`.
fn round_up(value: f64) -> f64 {
    let unit = 10f64.powf(value.max(1e-3).log10().floor());
    [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
        .into_iter()
        .map(|step| step * unit)
        .find(|round| *round >= value)
        .unwrap_or(value)
}

fn over_time(area: &Area<'_>, figures: &Figures) -> Drawn {
    let seconds = figures.curve.len() as f64 / 10.0;
    let most = round_up(figures.curve.iter().map(|(_, _, high)| *high).fold(1.0, f64::max));
    let mut chart = ChartBuilder::on(area)
        .margin(6)
        .margin_right(20)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..seconds.max(1.0), 0.0..most)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(GRID)
        .label_style(font(13))
        .x_desc("seconds after the load began")
        .y_desc("appends/s")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    let at = |slice: usize| slice as f64 / 10.0;
    let low = figures.curve.iter().enumerate().map(|(slice, (low, _, _))| (at(slice), *low));
    let high = figures.curve.iter().enumerate().map(|(slice, (_, _, high))| (at(slice), *high));
    let band: Vec<(f64, f64)> = high.chain(low.rev().collect::<Vec<_>>()).collect();
    chart.draw_series([Polygon::new(band, SOFT.mix(0.7).filled())])?;
    let middle = figures.curve.iter().enumerate().map(|(slice, (_, middle, _))| (at(slice), *middle));
    chart.draw_series(LineSeries::new(middle, MAIN.stroke_width(2)))?;
    for (number, (second, name)) in figures.struck.iter().enumerate() {
        chart.draw_series([PathElement::new(vec![(*second, 0.0), (*second, most)], ALARM.mix(0.8))])?;
        let style = font(13).color(&ALARM).pos(Pos::new(HPos::Left, VPos::Top));
        // One below the other, so that neighbours do not run into each other.
        let height = most * (0.985 - 0.07 * (number % 4) as f64);
        let shown = format!(" {name}");
        chart.draw_series([Text::new(shown, (*second, height), style)])?;
    }
    Ok(())
}

fn gaps(area: &Area<'_>, figures: &Figures) -> Drawn {
    let rows = figures.gaps.len() as f64;
    let most = round_up(figures.all_gaps.longest_ms.max(100.0));
    let mut chart = ChartBuilder::on(area)
        .margin(6)
        .margin_right(20)
        .x_label_area_size(36)
        .y_label_area_size(250)
        .build_cartesian_2d(0.0..most, 0.0..rows.max(1.0))?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(0)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(GRID)
        .label_style(font(13))
        .x_desc("milliseconds without an answered write; one dot a run and shard, the line is the median")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .draw()?;
    let (left, _) = chart.plotting_area().get_pixel_range();
    for (number, spread) in figures.gaps.iter().enumerate() {
        let y = rows - number as f64 - 0.5;
        let (_, pixel) = chart.plotting_area().map_coordinate(&(0.0, y));
        let style = font(13).pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(spread.name.clone(), (left.start - 10, pixel), style))?;
        let dots = spread.all.iter().enumerate().map(|(dot, ms)| {
            // Beside each other rather than on top of each other.
            let shift = ((dot % 5) as f64 - 2.0) * 0.08;
            Circle::new((*ms, y + shift), 3, MAIN.mix(0.55).filled())
        });
        chart.draw_series(dots)?;
        if spread.count > 0 {
            let line = vec![(spread.p50_ms, y - 0.38), (spread.p50_ms, y + 0.38)];
            chart.draw_series([PathElement::new(line, ALARM.stroke_width(2))])?;
        }
    }
    Ok(())
}

fn waits(area: &Area<'_>, figures: &Figures) -> Drawn {
    let rows = figures.waits.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .margin(6)
        .margin_right(20)
        .x_label_area_size(36)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..100.0, 0.0..rows)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .y_labels(0)
        .axis_style(GRID)
        .label_style(font(13))
        .x_desc("% of the calls that counted no other copy, one, two ... (left to right)")
        .x_label_formatter(&|x| format!("{x:.0} %"))
        .draw()?;
    let (left, _) = chart.plotting_area().get_pixel_range();
    for (number, (limit, counts)) in figures.waits.iter().enumerate() {
        let y = rows - number as f64 - 0.5;
        let (_, pixel) = chart.plotting_area().map_coordinate(&(0.0, y));
        let style = font(13).pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(format!("{limit} ms"), (left.start - 10, pixel), style))?;
        let all = counts.iter().sum::<u64>().max(1) as f64;
        let mut from = 0.0;
        for (copies, count) in counts.iter().enumerate() {
            let to = from + 100.0 * *count as f64 / all;
            let color = COPIES[copies.min(COPIES.len() - 1)];
            chart.draw_series([Rectangle::new([(from, y - 0.36), (to, y + 0.36)], color.filled())])?;
            if to - from > 4.0 {
                let style = font(13).pos(Pos::new(HPos::Center, VPos::Center));
                chart.draw_series([Text::new(copies.to_string(), ((from + to) / 2.0, y), style)])?;
            }
            from = to;
        }
    }
    Ok(())
}

fn bound(area: &Area<'_>, figures: &Figures) -> Drawn {
    let bounds: Vec<_> = figures.bound.iter().collect();
    let most = round_up(bounds.iter().map(|(_, bound)| bound.per_second).fold(1.0, f64::max));
    let bars = bounds.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .margin(6)
        .margin_right(20)
        .x_label_area_size(36)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..bars, 0.0..most)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(GRID)
        .label_style(font(13))
        .x_desc("writers at once, each waiting for its answer")
        .y_desc("writes/s")
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    let (_, down) = chart.plotting_area().get_pixel_range();
    for (number, (writers, bound)) in bounds.iter().enumerate() {
        let x = number as f64;
        let bar = [(x + 0.2, 0.0), (x + 0.8, bound.per_second)];
        chart.draw_series([Rectangle::new(bar, MAIN.mix(0.75).filled())])?;
        let style = font(13).pos(Pos::new(HPos::Center, VPos::Bottom));
        let shown = format!("{:.0}/s, p50 {}", bound.per_second, ms(bound.p50));
        // Above the bar, or in it where there is no room above.
        let top = bound.per_second.min(most * 0.93);
        chart.draw_series([Text::new(shown, (x + 0.5, top), style)])?;
        let (pixel, _) = chart.plotting_area().map_coordinate(&(x + 0.5, 0.0));
        let style = font(13).pos(Pos::new(HPos::Center, VPos::Top));
        area.draw(&Text::new(writers.to_string(), (pixel, down.end + 5), style))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::outlook::{
        drive::{Bound, Measured},
        shape,
    };

    #[test]
    fn a_page_needs_nothing_but_itself_and_lets_no_name_become_markup() {
        let sample = include_str!("../../examples/three-zones.toml");
        let mut shape = shape::read(sample).unwrap();
        shape.title = "<script>alert(1)</script> & co".to_owned();
        let one = Measured {
            gaps: vec![(0, 400.0), (1, 700.0)],
            appends: vec![4.0, 5.0],
            waits: BTreeMap::from([(5, vec![1, 2, 3])]),
            bound: BTreeMap::from([(1, Bound { per_second: 300.0, p50: 3.0, p99: 9.0, per_sync: 1.0 })]),
            curve: vec![30; 240],
            struck: vec![(3.0, "leader of shard 0: process killed, 2 s".to_owned())],
            ..Measured::default()
        };
        let page = page(&shape, &Figures::of(&shape, &[one]));
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert(1)"));
        for elsewhere in ["src=", "href=", "url(", "@import", "no chart"] {
            assert!(!page.contains(elsewhere), "{elsewhere}");
        }
        assert_eq!(page.matches("<svg").count(), 4);
        assert!(page.contains("process killed, 2 s"));
    }

    #[test]
    fn a_scale_ends_at_a_round_number() {
        assert_eq!([round_up(7.2), round_up(430.0), round_up(1001.0)], [8.0, 500.0, 1500.0]);
    }
}
