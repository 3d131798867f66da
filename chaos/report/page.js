(function () {
  'use strict';
  // This script is optional: without it the page shows the whole run, and can be scrolled.
  function roundStep(least) {
    var power = Math.pow(10, Math.floor(Math.log10(least)));
    return ([1, 2, 5, 10].find(function (by) { return by * power >= least * (1 - 1e-9); }) || 10) * power;
  }

  function setUp(box) {
    var scroll = box.querySelector('.scroll'), svg = scroll.querySelector('svg'), ticks = svg.querySelector('.ticks');
    var output = box.querySelector('output'), end = Number(box.dataset.end) / 1e9, most = Number(box.dataset.max);
    var zoom = 1, drawn = '', asked = false, height = svg.getAttribute('height');
    var buttons = {};
    box.querySelectorAll('button').forEach(function (b) { buttons[b.dataset.do] = b; });

    function element(name, attributes) {
      var e = document.createElementNS('http://www.w3.org/2000/svg', name);
      Object.keys(attributes).forEach(function (k) { e.setAttribute(k, attributes[k]); });
      return e;
    }

    // Only the visible part has ticks, and one screen on either side of it.
    function axis() {
      asked = false;
      var width = svg.getBoundingClientRect().width, step = roundStep(end * 90 / width);
      var perPixel = end / width, seen = scroll.clientWidth * perPixel, left = scroll.scrollLeft * perPixel;
      var first = Math.max(0, Math.floor((left - seen) / step)), last = Math.floor(Math.min(end, left + 2 * seen) / step);
      var key = [width, first, last].join();
      if (key === drawn || !width) return;
      drawn = key;
      ticks.replaceChildren();
      var digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
      for (var i = first; i <= last; i++) {
        var share = i * step / end, x = 100 * share + '%';
        ticks.append(element('line', {x1: x, x2: x, y1: 20, y2: height}));
        var text = element('text', {x: x, y: 14,
          'text-anchor': i === 0 ? 'start' : (1 - share) * width < 30 ? 'end' : 'middle'});
        text.textContent = (i * step).toFixed(digits) + ' s';
        ticks.append(text);
      }
    }

    function soon() {
      if (!asked) { asked = true; requestAnimationFrame(axis); }
    }

    // The time at this distance from the left edge stays there.
    function set(to, at) {
      var share = (scroll.scrollLeft + at) / svg.getBoundingClientRect().width;
      zoom = Math.min(most, Math.max(1, to));
      svg.style.setProperty('--zoom', zoom);
      scroll.scrollLeft = share * svg.getBoundingClientRect().width - at;
      output.textContent = '×' + (zoom < 10 ? Math.round(zoom * 10) / 10 : Math.round(zoom));
      buttons.out.disabled = buttons.fit.disabled = zoom <= 1;
      buttons.in.disabled = zoom >= most;
      soon();
    }
    function middle() { return scroll.clientWidth / 2; }

    var does = {
      out: function () { set(zoom / 2, middle()); },
      in: function () { set(zoom * 2, middle()); },
      fit: function () { set(1, middle()); }
    };
    Object.keys(buttons).forEach(function (k) { buttons[k].addEventListener('click', does[k]); });
    scroll.addEventListener('keydown', function (e) {
      var what = {'+': 'in', '=': 'in', '-': 'out', '0': 'fit'}[e.key];
      if (!what || e.ctrlKey || e.metaKey || e.altKey) return;
      e.preventDefault();
      does[what]();
    });
    scroll.addEventListener('wheel', function (e) {
      if (!e.ctrlKey && !e.metaKey) return; // the page scrolls as usual
      e.preventDefault();
      set(zoom * Math.pow(2, -e.deltaY / (e.deltaMode ? 6 : 200)), e.clientX - scroll.getBoundingClientRect().left);
    }, {passive: false});
    scroll.addEventListener('scroll', soon);
    addEventListener('resize', soon);
    addEventListener('beforeprint', function () { set(1, 0); asked = false; axis(); });

    // show moves a violation to the middle, and makes it about a third of the visible width.
    function show(link) {
      var at = Number(link.dataset.at) / 1e9, length = Number(link.dataset.for) / 1e9;
      set(1, 0);
      set(scroll.clientWidth * end / svg.getBoundingClientRect().width / Math.max(3 * length, 0.05), 0);
      scroll.scrollLeft = (at + length / 2) / end * svg.getBoundingClientRect().width - middle();
      svg.querySelectorAll('.shown').forEach(function (m) { m.classList.remove('shown'); });
      var mark = document.getElementById(link.closest('li').id.replace('violation', 'mark'));
      if (mark) mark.classList.add('shown');
      box.scrollIntoView({block: 'nearest'});
      soon();
    }
    box.closest('article').querySelectorAll('a[data-violation]').forEach(function (link) {
      link.addEventListener('click', function (e) { e.preventDefault(); show(link); });
    });

    box.querySelector('.tools').hidden = false;
    set(1, 0);
    axis();
  }

  document.querySelectorAll('.timeline').forEach(setUp);

  // For tests of the page: by how much it is wider than the window.
  function measure() {
    var root = document.documentElement;
    document.body.dataset.width = innerWidth;
    document.body.dataset.overflow = Math.max(0, root.scrollWidth - root.clientWidth);
  }
  addEventListener('resize', measure);
  measure();
})();
