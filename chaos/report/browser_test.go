package report_test

import (
	"context"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/required"
)

// frame shows the page in a frame of this width, because windows are never narrower than 500 pixels. What the page
// reports about itself is copied to where --dump-dom sees it.
const frame = `<!DOCTYPE html><meta charset="utf-8"><body style="margin:0">
<iframe id="page" style="border:0;width:%dpx;height:900px" srcdoc="%s"></iframe>
<script>
onload = function () {
  var inner = document.getElementById('page').contentDocument;
  inner.querySelector('[data-do=in]').click();
  var zoomed = inner.querySelector('.scroll > svg').getBoundingClientRect().width / inner.querySelector('.scroll').clientWidth;
  var link = inner.querySelectorAll('a[data-violation]')[0];
  link.click();
  var says = document.createElement('p');
  says.id = 'says';
  var scroll = inner.querySelector('.scroll').getBoundingClientRect();
  var mark = inner.getElementById('run-1-mark-1').getBoundingClientRect();
  says.textContent = ['overflow', inner.documentElement.scrollWidth - inner.documentElement.clientWidth,
    'own', inner.body.dataset.overflow, 'width', inner.body.dataset.width,
    'lanes', inner.querySelectorAll('.lane').length, 'marks', inner.querySelectorAll('.mark').length,
    'listed', inner.querySelectorAll('.violations li').length, 'ticks', inner.querySelectorAll('.ticks text').length > 2,
    'zoomed', zoomed > 1.5, 'shown', mark.left > scroll.left && mark.left < scroll.right,
    'names', Array.from(inner.querySelectorAll('.names div')).every(function (d) { return d.scrollWidth <= d.clientWidth; })
  ].join(' ');
  document.getElementById('page').remove();
  document.body.append(says);
};
</script>`

func TestThePageFitsAPhoneAndADesk(t *testing.T) {
	chromium := required.Chromium(t)
	run := unsafeRun(t, 2*time.Second)
	whole := page(t, run)
	for _, width := range []int{420, 1400} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "report.html")
			require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, frame, width, html.EscapeString(whole)), 0o600))
			dom := dump(t, chromium, file)
			says := regexp.MustCompile(`<p id="says">([^<]*)</p>`).FindStringSubmatch(dom)
			require.NotNil(t, says, "the script did not come to its end: %s", dom[max(0, len(dom)-1000):])
			n := len(run.Result.Violations)
			assert.Equal(t, fmt.Sprintf("overflow 0 own 0 width %d lanes 7 marks %d listed %d ticks true zoomed true shown true names true",
				width, n, n), says[1])
		})
	}
	t.Run("by itself", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "report.html")
		require.NoError(t, os.WriteFile(file, []byte(whole), 0o600))
		dom := dump(t, chromium, file)
		assert.Contains(t, dom, `data-overflow="0"`)
		assert.Equal(t, 7, strings.Count(dom, `data-lane="`))
		assert.NotContains(t, dom, `class="tools" hidden`, "the script has run")
	})
}

func dump(t *testing.T, chromium, file string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,900",
		"--user-data-dir="+t.TempDir(), "--virtual-time-budget=5000", "--dump-dom", "file://"+filepath.ToSlash(file))
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}
