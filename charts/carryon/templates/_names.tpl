{{/*
Names and labels.

Of the name 45 characters are left: with "-valkey" that makes 52, the most a StatefulSet may have (its pods carry its
name and a hash in one label of 63). A longer one is cut and ends in a digest, so that two of them stay two.
*/}}
{{- define "carryon.fullname" -}}
{{- $short := default .Chart.Name .Values.nameOverride -}}
{{- $both := ternary .Release.Name (printf "%s-%s" .Release.Name $short) (contains $short .Release.Name) -}}
{{- $name := default $both .Values.fullnameOverride -}}
{{- if gt (len $name) 45 -}}
{{- $name = printf "%s-%s" (trunc 38 $name | trimSuffix "-") (sha256sum $name | trunc 6) -}}
{{- end -}}
{{- $name -}}
{{- end }}

{{- define "carryon.valkey" -}}
{{ include "carryon.fullname" . }}-valkey
{{- end }}

{{- define "carryon.serviceAccount" -}}
{{- default (ternary (include "carryon.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end }}

{{/* What a selector names; it can never change. Called with (list $ component). */}}
{{- define "carryon.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "carryon.labels" -}}
{{- $root := index . 0 -}}
{{ include "carryon.selector" . }}
app.kubernetes.io/part-of: carryon
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{ with $root.Chart.AppVersion }}app.kubernetes.io/version: {{ . | replace "+" "_" | quote }}
{{ end -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "carryon.image" -}}
{{- $cure := "image.repository is required: build the image (docker build -t registry.example.com/carryon .), push it, and name it here" -}}
{{- $repository := required $cure .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end }}

{{/* Restrictions that hold for every container. */}}
{{- define "carryon.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* The same for every pod. Called with the user. */}}
{{- define "carryon.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}
