/* Browsers start no workers on pages opened from a folder (file://): there, run the search's worker in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.srcdoc = "<!doctype html>"
      this.scope = new Promise((resolve, reject) => {
        frame.onload = () => {
          const scope = frame.contentWindow
          scope.postMessage = data => setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })))
          const script = frame.contentDocument.createElement("script")
          script.src = url
          script.onload = () => resolve(scope)
          script.onerror = reject
          frame.contentDocument.body.append(script)
        }
      })
      document.body.append(frame)
    }
    postMessage(data) {
      this.scope.then(scope => scope.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
