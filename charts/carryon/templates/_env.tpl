{{/* What the chart sets itself stands over the file; what comes from a Secret is never written here. */}}
{{- define "carryon.env" -}}
- {name: CARRYON_CONFIG, value: /etc/carryon/carryon.yaml}
- {name: CARRYON_STATE_DIR, value: /var/lib/carryon}
- {name: CARRYON_LISTEN__HOST, value: {{ .Values.bindAddress | quote }}}
- {name: CARRYON_LISTEN__PORT, value: "8787"}
- {name: CARRYON_ADMIN__HOST, value: {{ .Values.bindAddress | quote }}}
- {name: CARRYON_ADMIN__PORT, value: "8788"}
{{ $name := include "carryon.fullname" . -}}
{{ include "carryon.secretVariable" (list "CARRYON_SECRET" (default $name .Values.secret.existingSecret) .Values.secret.key) }}
{{- if .Values.adminToken.enabled }}
{{ include "carryon.secretVariable" (list "CARRYON_ADMIN__TOKEN" (default (printf "%s-admin" $name) .Values.adminToken.existingSecret) .Values.adminToken.key) }}
{{- end }}
{{- if .Values.valkey.enabled }}
{{ include "carryon.secretVariable" (list "CARRYON_REDIS__URL" (include "carryon.valkey" .) "url") }}
{{- else if .Values.redis.existingSecret }}
{{ include "carryon.secretVariable" (list "CARRYON_REDIS__URL" .Values.redis.existingSecret .Values.redis.key) }}
{{- else if .Values.redis.url }}
- {name: CARRYON_REDIS__URL, value: {{ .Values.redis.url | quote }}}
{{- end }}
{{- range $variable, $source := .Values.secretEnv }}
{{ include "carryon.secretVariable" (list $variable $source.name $source.key) }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "carryon.secretVariable" -}}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef:
      name: {{ index . 1 | quote }}
      key: {{ index . 2 | quote }}
{{- end }}
