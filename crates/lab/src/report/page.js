(function () {
  "use strict";
  // What a pointer reads off a chart: the nearest x of those that the chart knows.
  var reading = document.getElementById("reading");
  Array.prototype.forEach.call(document.querySelectorAll("g.hover"), function (group) {
    var svg = group.ownerSVGElement, places = group.getAttribute("data-x").split(",").map(parseFloat);
    var texts = group.getAttribute("data-t").split("|");
    var shade = group.querySelector(".catch");
    var rule = document.createElementNS("http://www.w3.org/2000/svg", "line");
    rule.setAttribute("class", "pointer");
    rule.setAttribute("y1", shade.getAttribute("y"));
    rule.setAttribute("y2", parseFloat(shade.getAttribute("y")) + parseFloat(shade.getAttribute("height")));
    rule.style.display = "none";
    group.insertBefore(rule, shade);
    shade.addEventListener("mousemove", function (event) {
      var box = svg.getBoundingClientRect(), x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
      var best = 0;
      for (var i = 1; i < places.length; i++) {
        if (Math.abs(places[i] - x) < Math.abs(places[best] - x)) { best = i; }
      }
      rule.setAttribute("x1", places[best]);
      rule.setAttribute("x2", places[best]);
      rule.style.display = "";
      reading.textContent = texts[best].split("~").join("\n");
      reading.hidden = false;
      var left = event.clientX + 16;
      if (left + reading.offsetWidth > window.innerWidth - 8) { left = event.clientX - reading.offsetWidth - 16; }
      reading.style.left = left + "px";
      reading.style.top = Math.min(event.clientY + 12, window.innerHeight - reading.offsetHeight - 8) + "px";
    });
    shade.addEventListener("mouseleave", function () { rule.style.display = "none"; reading.hidden = true; });
  });
}());
