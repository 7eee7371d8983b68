"use strict";
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const colours = (isDark) => isDark
    ? { ink: "#dfe3e8", soft: "#9aa4af", faint: "#343a42", raised: "#262b31" }
    : { ink: "#1f2328", soft: "#59626c", faint: "#e4e7eb", raised: "#ffffff" };

  // Plots do not know the page's colours: tell them.
  const themed = (layout, c) => {
    const update = {
      "font.color": c.ink,
      "hoverlabel.bgcolor": c.raised,
      "hoverlabel.bordercolor": c.soft,
      "hoverlabel.font.color": c.ink,
    };
    const axis = (name) => {
      update[name + ".gridcolor"] = c.faint;
      update[name + ".linecolor"] = c.soft;
      update[name + ".tickcolor"] = c.soft;
    };
    Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key)).forEach(axis);
    if (layout.scene) ["scene.xaxis", "scene.yaxis", "scene.zaxis"].forEach(axis);
    return update;
  };

  const plots = [...document.querySelectorAll(".plot")];
  const paint = (isDark, more = {}) => plots.forEach((plot) => {
    if (plot.layout) Plotly.relayout(plot, { ...themed(plot.layout, colours(isDark)), ...more });
  });

  const show = async (plot) => {
    const source = document.getElementById("plot-" + plot.dataset.place);
    const { data, layout } = JSON.parse(source.textContent);
    if (plot.clientWidth < 560) {
      // A narrow screen: panels keep their width by giving up margins.
      layout.margin = { ...layout.margin, l: 48, r: 6 };
      layout.font = { ...layout.font, size: 11 };
    }
    await Plotly.newPlot(plot, data, layout, {
      responsive: true,
      displaylogo: false,
      showSendToCloud: false, // the data stay here
      plotlyServerURL: "",
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
      toImageButtonOptions: { format: "svg", filename: plot.dataset.name },
    });
    await Plotly.relayout(plot, themed(plot.layout, colours(dark.matches)));
  };

  const start = async () => {
    for (const plot of plots) {
      try {
        await show(plot);
      } catch (error) {
        plot.textContent = "This plot cannot be shown here (" + error + "). Its numbers are below.";
      }
    }
    document.documentElement.dataset.ready = "yes";
  };

  dark.addEventListener("change", () => paint(dark.matches));
  // Paper is white, and A4 between its margins is about 680 pixels wide.
  window.addEventListener("beforeprint", () => paint(false, { width: 680 }));
  window.addEventListener("afterprint", () => paint(dark.matches, { width: null, autosize: true }));
  start();
})();
