(function () {
  "use strict";
  // A name that does not fit its frame is cut in front: the end of a path says more than its start.
  function fit(name, width) {
    var room = Math.floor((width - 6) / 6.7);
    if (room < 3) { return ""; }
    return name.length <= room ? name : "\u2026" + name.slice(name.length - room + 1);
  }
  function number(g, what) { return parseFloat(g.getAttribute("data-" + what)); }
  function start(svg) {
    var width = parseFloat(svg.getAttribute("data-width"));
    var frames = Array.prototype.slice.call(svg.querySelectorAll("g.f"));
    var say = svg.querySelector(".f-say");
    var idle = say ? say.textContent : "";
    function zoom(target) {
      var from = number(target, "x"), span = number(target, "w"), depth = number(target, "d");
      frames.forEach(function (g) {
        var x = number(g, "x"), w = number(g, "w"), above = number(g, "d") < depth;
        var left = Math.max(0, (x - from) / span), right = Math.min(1, (x + w - from) / span);
        if (right - left < 0.0004) { g.style.display = "none"; return; }
        g.style.display = "";
        g.style.opacity = above ? "0.6" : "";
        var rect = g.querySelector("rect"), text = g.querySelector("text");
        rect.setAttribute("x", left * width);
        rect.setAttribute("width", (right - left) * width);
        if (!text) {
          text = document.createElementNS("http://www.w3.org/2000/svg", "text");
          text.setAttribute("y", parseFloat(rect.getAttribute("y")) + 12);
          g.appendChild(text);
        }
        text.setAttribute("x", left * width + 3);
        text.textContent = fit(g.getAttribute("data-n"), (right - left) * width);
      });
    }
    frames.forEach(function (g) {
      g.addEventListener("click", function () { zoom(g); });
      g.addEventListener("keydown", function (event) { if (event.key === "Enter") { zoom(g); } });
      g.addEventListener("mouseenter", function () {
        if (say) { say.textContent = g.querySelector("title").textContent; }
      });
    });
    svg.addEventListener("mouseleave", function () { if (say) { say.textContent = idle; } });
    svg.addEventListener("dblclick", function () { if (frames.length) { zoom(frames[0]); } });
    svg.flameSearch = function (words) {
      words = words.trim().toLowerCase();
      svg.classList.toggle("searching", words !== "");
      var width = 0, end = -1;
      frames.forEach(function (g) {
        var hit = words !== "" && g.getAttribute("data-n").toLowerCase().indexOf(words) >= 0;
        g.classList.toggle("hit", hit);
      });
      // The share of all samples below any hit, nested hits counted once.
      frames.filter(function (g) { return g.classList.contains("hit"); })
        .map(function (g) { return [number(g, "x"), number(g, "x") + number(g, "w")]; })
        .sort(function (a, b) { return a[0] - b[0] || b[1] - a[1]; })
        .forEach(function (span) { if (span[1] > end) { width += span[1] - Math.max(span[0], end); end = span[1]; } });
      if (say) { say.textContent = words === "" ? idle : (100 * width).toFixed(1) + " % of the samples match \u201c" + words + "\u201d"; }
    };
  }
  function all() {
    Array.prototype.forEach.call(document.querySelectorAll("svg.flame"), start);
    Array.prototype.forEach.call(document.querySelectorAll("input[data-flame]"), function (input) {
      input.addEventListener("input", function () {
        var svg = document.getElementById(input.getAttribute("data-flame"));
        if (svg && svg.flameSearch) { svg.flameSearch(input.value); }
      });
    });
    // A graph that stands alone has no field to type into: the slash key asks.
    if (document.documentElement.nodeName.toLowerCase() === "svg") {
      document.addEventListener("keydown", function (event) {
        if (event.key === "/" || (event.key === "f" && event.ctrlKey)) {
          event.preventDefault();
          var words = window.prompt("Which name?", "");
          if (words !== null) { document.documentElement.flameSearch(words); }
        }
      });
    }
  }
  if (document.readyState === "loading") { document.addEventListener("DOMContentLoaded", all); } else { all(); }
}());
